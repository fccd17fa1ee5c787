//! The entries of DeepSpeed's files: those that are used here, and those known to change nothing.
//! Any other is named.

use crate::torch::{Node, Value};
use std::collections::BTreeSet;

/// A file of model states. The result has a copy of it.
const MODEL: [&[&str]; 2] = [
    &[
        "module",
        "buffer_names",
        "optimizer",
        "param_shapes",
        "frozen_param_shapes",
        "frozen_param_fragments",
        "shared_params",
        "lr_scheduler",
        "data_sampler",
        "random_ltd",
        "sparse_tensor_module_names",
        "csr_tensor_module_names",
        "skipped_steps",
        "global_steps",
        "global_samples",
        "dp_world_size",
        "mp_world_size",
        "checkpoint_parallel_dimensions",
        "universal_checkpoint_info",
        "num_experts",
        "ds_autoep_layers",
        "autoep_layers",
        "folding",
        "ds_config",
        "ds_version",
    ],
    // Megatron-DeepSpeed's and Lightning's own, which load_checkpoint hands back to them.
    &[
        "args",
        "checkpoint_version",
        "checkpoint_info",
        "iteration",
        "tokens",
        "opt_param_scheduler",
        "random_rng_state",
        "np_rng_state",
        "torch_rng_state",
        "cuda_rng_state",
        "rng_tracker_states",
        "rng_state",
        "epoch",
        "global_step",
        "pytorch-lightning_version",
        "loops",
        "callbacks",
        "lr_schedulers",
        "hparams_name",
        "hyper_parameters",
    ],
];

/// A file of optimizer states.
pub(crate) const FILE: [&[&str]; 1] = [&["optimizer_state_dict", "ds_config", "ds_version"]];

/// What `optimizer_state_dict` has: all stages', those of stages 1 and 2, and those of stage 3.
pub(crate) const OPTIMIZER: [&[&str]; 3] = [
    &[
        "zero_stage",
        "loss_scaler",
        "dynamic_loss_scale",
        "overflow",
        "partition_count",
        "ds_version",
        "universal_checkpoint_info",
    ],
    &[
        "clip_grad",
        "base_optimizer_state",
        "base_optimizer_state_step",
        "single_partition_of_fp32_groups",
        "group_paddings",
        "param_alignment_paddings",
        "param_slice_mappings",
    ],
    &["optimizer_state_dict", "fp32_flat_groups", "ds_zero_partition_groups"],
];

/// The optimizer's own dictionary.
pub(crate) const INNER: [&[&str]; 1] = [&["state", "param_groups"]];

/// The keys of a dictionary that no list has.
pub(crate) fn unknown(node: Node, lists: &[&[&str]]) -> BTreeSet<String> {
    let entries = node.entries().filter(|(_, value)| !value.is_none());
    entries
        .filter_map(|(key, _)| key.text())
        .filter(|key| !lists.iter().any(|list| list.contains(key)))
        .map(|key| key.escape_debug().to_string())
        .collect()
}

/// The keys of a file of model states that are not known. A program's own numbers and texts
/// (`client_state`) follow what DeepSpeed writes: `load_checkpoint` hands them back, and they change
/// nothing.
pub(crate) fn unknown_of_model(root: Node) -> BTreeSet<String> {
    let mut unknown = unknown(root, &MODEL);
    let rest = root.entries().skip_while(|(key, _)| key.text() != Some("ds_version"));
    for (key, value) in rest {
        let plain = matches!(
            value.value(),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_)
        );
        if plain {
            unknown.remove(&*key.text().unwrap_or_default().escape_debug().to_string());
        }
    }
    unknown
}
