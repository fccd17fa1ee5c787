//! The optimizer's state that all ranks share: hyperparameters, the loss scaler, versions.

use super::output::Output;
use crate::know::Part;
use crate::read::{Source, ensure_name};
use crate::torch::{Graph, Id, Node, TorchFile, Value, save_value};
use crate::{INCOMPLETE, broken};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::collections::BTreeSet;
use std::path::Path;

/// Entries that consist of slices. They are in the parameters' own folders.
const SLICES: [&str; 3] = [
    "base_optimizer_state",
    "param_slice_mappings",
    "single_partition_of_fp32_groups",
];

/// Writes what does not belong to one parameter. `names` are written.
pub(crate) fn save<'a>(
    source: &Source,
    output: &Output,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), BadInput> {
    write(output, &source.shards[0][0].path, source.stage)?;
    for path in source.files.models.values() {
        let to = output.folder().join(path.file_name().unwrap_or_default());
        std::fs::copy(path, &to).map_err(|error| {
            let what = format!("cannot copy {} to {}: {error}", path.display(), to.display());
            BadInput::new(what, cause::unread(&error, INCOMPLETE))
        })?;
    }
    if source.stage < 3 {
        save_others(source, output, names.map(String::as_str).collect())?;
    }
    Ok(())
}

/// Writes the model's tensors that the optimizer does not have, buffers and second names of
/// parameters included, as DeepSpeed's converter does in stages 1 and 2. Its loader reads none of
/// them: with `load_universal` it loads what the optimizer has, and leaves the module alone.
fn save_others<'a>(
    source: &'a Source,
    output: &Output,
    mut written: BTreeSet<&'a str>,
) -> Result<(), BadInput> {
    for model in &source.models {
        for (name, weight) in &model.weights {
            if !written.insert(name) {
                continue;
            }
            ensure_name(&model.path, name)?;
            let mut part = Part {
                shape: weight.shape.clone(),
                bytes: vec![0; weight.numel() * weight.dtype.size()],
            };
            weight.read(0..weight.numel(), &mut part.bytes)?;
            output.other(name, weight.dtype, &part)?;
        }
    }
    Ok(())
}

/// Writes `zero/optimizer_state.pt` from one rank's file.
fn write(output: &Output, shard: &Path, stage: usize) -> Result<(), BadInput> {
    let file = TorchFile::open(shard)?;
    let mut graph = file.graph.clone();
    let root = file.graph.root();
    let state = root
        .get("optimizer_state_dict")
        .ok_or_else(|| broken(shard, "it has no optimizer_state_dict"))?;
    let inner = if stage == 3 {
        "optimizer_state_dict"
    } else {
        "base_optimizer_state"
    };
    let mut pairs: Vec<(Id, Id)> = Vec::new();
    for (key, value) in state.entries() {
        let name = key.text().unwrap_or_default();
        if stage != 3 && SLICES.contains(&name) {
            continue;
        }
        let value = match name {
            // Parameters are whole now.
            "group_paddings" if stage != 3 => zeros(&mut graph, value),
            _ => value.id,
        };
        pairs.push((key.id, value));
    }
    if let Some(groups) = state.get(inner).and_then(|inner| inner.get("param_groups")) {
        let key = graph.text("param_groups");
        pairs.push((key, groups.id));
    }
    graph.root = graph.push(Value::Dict(pairs));
    save_value(&output.folder().join("zero/optimizer_state.pt"), &file, &graph)
}

/// A list of as many zeros.
fn zeros(graph: &mut Graph, list: Node) -> Id {
    let zeros = list.items().map(|_| graph.push(Value::Int(0))).collect();
    graph.push(Value::List(zeros))
}
