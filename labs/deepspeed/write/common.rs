//! The optimizer's state that all ranks share: hyperparameters, the loss scaler, versions.

use super::output::Output;
use crate::know::Part;
use crate::options::Format;
use crate::read::{Source, ensure_name, json};
use crate::report::{Results, lock};
use crate::torch::{Graph, Id, Node, TorchFile, Value, save_value};
use crate::{INCOMPLETE, broken};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

/// Entries that consist of slices. They are in the parameters' own folders.
const SLICES: [&str; 3] = [
    "base_optimizer_state",
    "param_slice_mappings",
    "single_partition_of_fp32_groups",
];

/// Writes what does not belong to one parameter.
pub(crate) fn save(
    source: &Source,
    output: &Output,
    step: Option<f64>,
    results: &Results,
    notes: &mut Vec<String>,
) -> Result<(), BadInput> {
    let shard = &source.shards[0][0].path;
    if source.options.format == Format::Safetensors {
        let file = TorchFile::open(shard)?;
        let state = file.graph.root().get("optimizer_state_dict");
        let key = if source.stage == 3 {
            "optimizer_state_dict"
        } else {
            "base_optimizer_state"
        };
        let groups =
            state.and_then(|state| state.get(key)).and_then(|base| base.get("param_groups"));
        let record = serde_json::json!({
            "source": "DeepSpeed",
            "zero_stage": source.stage,
            "param_groups": groups.map(|groups| json(groups, 4, &mut 100_000)),
        });
        let steps =
            (step.unwrap_or(0.0) as u64, source.models[0].steps.unwrap_or(0).max(0) as usize);
        return output.index(std::mem::take(&mut lock(&results.hashes)), steps, record);
    }
    let refused = write(output, shard, source.stage, source.files.dp)?;
    if !refused.is_empty() {
        notes.push(format!(
            "optimizer_state.pt has None for objects of {}: they could run code",
            refused.join(", ")
        ));
    }
    for path in source.files.models.values() {
        let to = output.folder().join(path.file_name().unwrap_or_default());
        std::fs::copy(path, &to).map_err(|error| {
            let help = cause::unread(&error, INCOMPLETE);
            BadInput::new(
                format!("cannot copy {} to {}: {error}", path.display(), to.display()),
                help,
            )
        })?;
    }
    if source.stage < 3 {
        save_others(source, output, results, notes)?;
    }
    Ok(())
}

/// Writes the model's tensors that the optimizer does not have: buffers, frozen parameters, and
/// other names of one parameter. DeepSpeed keeps those of stages 1 and 2 with the parameters.
fn save_others(
    source: &Source,
    output: &Output,
    results: &Results,
    notes: &mut Vec<String>,
) -> Result<(), BadInput> {
    let mut written: BTreeSet<&str> = BTreeSet::new();
    for model in &source.models {
        for (name, weight) in &model.weights {
            if lock(&results.shapes).contains_key(name) || !written.insert(name) {
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
        for name in &model.unread {
            notes.push(format!(
                "{name} of {} cannot be read, and is left out",
                model.path.display()
            ));
        }
    }
    Ok(())
}

/// Writes `zero/optimizer_state.pt` from one rank's file. Returns the classes that were left out.
fn write(
    output: &Output,
    shard: &Path,
    stage: usize,
    ranks: usize,
) -> Result<Vec<String>, BadInput> {
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
            "group_paddings" if stage != 3 => same(&mut graph, value, 0),
            "partition_count" if stage != 3 => same(&mut graph, value, ranks as i64),
            _ => value.id,
        };
        pairs.push((key.id, value));
    }
    if let Some(groups) = state.get(inner).and_then(|inner| inner.get("param_groups")) {
        let key = graph.text("param_groups");
        pairs.push((key, groups.id));
    }
    graph.root = graph.push(Value::Dict(pairs));
    let refused = RefCell::new(BTreeSet::new());
    let keep = |module: &str, name: &str| {
        let keep = harmless(module, name);
        if !keep {
            refused.borrow_mut().insert(format!("{module}.{name}"));
        }
        keep
    };
    save_value(&output.folder().join("zero/optimizer_state.pt"), &file, &graph, &keep)?;
    Ok(refused.into_inner().into_iter().collect())
}

/// A list of as many numbers.
fn same(graph: &mut Graph, list: Node, number: i64) -> Id {
    if list.items().len() == 0 {
        return list.id;
    }
    let numbers = list.items().map(|_| graph.push(Value::Int(number))).collect();
    graph.push(Value::List(numbers))
}

/// Whether a reader may be asked for this class. A pickle can ask for any function; these only make
/// values.
fn harmless(module: &str, name: &str) -> bool {
    let is_class = name.starts_with(|c: char| c.is_ascii_uppercase());
    match module {
        "torch" => {
            is_class
                || name == "device"
                || name.starts_with(['f', 'b', 'i', 'u']) && name.ends_with(char::is_numeric)
        }
        "torch._utils" => name.starts_with("_rebuild_"),
        "torch._tensor" => name == "_rebuild_from_type_v2",
        "collections" => matches!(name, "OrderedDict" | "defaultdict" | "deque" | "Counter"),
        "builtins" | "__builtin__" => {
            matches!(
                name,
                "dict"
                    | "list"
                    | "set"
                    | "frozenset"
                    | "tuple"
                    | "int"
                    | "float"
                    | "bool"
                    | "str"
                    | "bytes"
                    | "object"
            )
        }
        "_codecs" => name == "encode",
        "argparse" => name == "Namespace",
        "numpy.core.multiarray" | "numpy._core.multiarray" => {
            matches!(name, "_reconstruct" | "scalar")
        }
        "numpy" => matches!(name, "dtype" | "ndarray"),
        _ => is_class && module.starts_with("deepspeed."),
    }
}
