//! The optimizer's state that all ranks share: hyperparameters, the loss scaler, versions.

use super::output::Output;
use crate::INCOMPLETE;
use crate::know::Part;
use crate::read::{Rest, Source, ensure_name, need, optimizer};
use crate::torch::{Graph, Id, Node, TorchFile, Value, save_value};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::path::Path;

/// Entries that consist of slices. They are in the parameters' own folders.
const SLICES: [&str; 3] = [
    "base_optimizer_state",
    "param_slice_mappings",
    "single_partition_of_fp32_groups",
];

/// Writes what does not belong to one parameter.
pub(crate) fn save(source: &Source, rest: &Rest, output: &Output) -> Result<(), BadInput> {
    write(output, &source.shards[0][0].path, source.stage)?;
    for path in source.files.models.values() {
        let to = output.folder().join(path.file_name().unwrap_or_default());
        std::fs::copy(path, &to).map_err(|error| {
            let what = format!("cannot copy {} to {}: {error}", path.display(), to.display());
            BadInput::new(what, cause::unread(&error, INCOMPLETE))
        })?;
    }
    // As DeepSpeed's converter does in stages 1 and 2. Its loader reads none of them: with
    // `load_universal` it loads what the optimizer has, and leaves the module alone.
    for (name, value) in rest.copied.iter().filter(|_| source.stage < 3) {
        ensure_name(&source.models[0].path, name)?;
        let mut bytes = vec![0; value.numel() * value.dtype.size()];
        value.read(0..value.numel(), &mut bytes)?;
        output.other(name, value.dtype, &Part { shape: value.shape.clone(), bytes })?;
    }
    Ok(())
}

/// Writes `zero/optimizer_state.pt` from one rank's file.
fn write(output: &Output, shard: &Path, stage: usize) -> Result<(), BadInput> {
    let file = TorchFile::open(shard)?;
    let mut graph = file.graph.clone();
    let state = need(shard, file.graph.root(), "optimizer_state_dict")?;
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
    if let Some(groups) = optimizer(state).and_then(|of| of.get("param_groups")) {
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
