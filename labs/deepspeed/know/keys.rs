//! The entries of DeepSpeed's files: those that are used here, and those known to change nothing.
//! Any other is named.

use crate::torch::{Node, Value};
use std::collections::BTreeSet;

/// A file of model states, which the result has a copy of. Below, what Megatron-DeepSpeed and
/// Lightning add and `load_checkpoint` hands back to them.
const MODEL: &str = "
    module buffer_names param_shapes shared_params frozen_param_shapes frozen_param_fragments
    optimizer lr_scheduler data_sampler random_ltd sparse_tensor_module_names csr_tensor_module_names
    skipped_steps global_steps global_samples dp_world_size mp_world_size ds_config ds_version
    checkpoint_parallel_dimensions universal_checkpoint_info
    num_experts ds_autoep_layers autoep_layers folding

    args checkpoint_version checkpoint_info iteration tokens opt_param_scheduler rng_state
    random_rng_state np_rng_state torch_rng_state cuda_rng_state rng_tracker_states
    epoch global_step pytorch-lightning_version loops callbacks lr_schedulers
    hparams_name hyper_parameters";

/// A file of optimizer states, and what its two dictionaries of that name have: ZeRO's, for all
/// stages, for 1 and 2, and for 3; and the optimizer's own.
pub(crate) const SHARD: &str = "
    optimizer_state_dict ds_config ds_version
    zero_stage loss_scaler dynamic_loss_scale overflow partition_count
    clip_grad base_optimizer_state base_optimizer_state_step single_partition_of_fp32_groups
    group_paddings param_alignment_paddings param_slice_mappings universal_checkpoint_info
    fp32_flat_groups ds_zero_partition_groups
    state param_groups";

/// The keys of a dictionary that are not in a list.
pub(crate) fn unknown(node: Node, list: &str) -> BTreeSet<String> {
    let entries = node.entries().filter(|(_, value)| !value.is_none());
    let keys = entries.filter_map(|(key, _)| key.text());
    let unknown = keys.filter(|key| !list.split_whitespace().any(|known| known == *key));
    unknown.map(str::to_string).collect()
}

/// The keys of a file of model states that are not known. A program's own numbers and texts
/// (`client_state`) follow what DeepSpeed writes: `load_checkpoint` hands them back, and they
/// change nothing.
pub(crate) fn unknown_of_model(root: Node) -> BTreeSet<String> {
    let mut unknown = unknown(root, MODEL);
    let rest = root.entries().skip_while(|(key, _)| key.text() != Some("ds_version"));
    for (key, value) in rest {
        use Value::{Bool, Float, Int, Text};
        if matches!(value.value(), Bool(_) | Int(_) | Float(_) | Text(_)) {
            unknown.remove(key.text().unwrap_or_default());
        }
    }
    unknown
}
