//! A rank's slice of the optimizer's state: flat buffers, and the fragments of parameters in them.

use super::kind::{Rank, misnamed};
use super::model::{ensure_name, need, round_robin};
use crate::know::{SHARD, Shapes, unknown};
use crate::torch::{Dtype, Node, Stored, TorchFile};
use crate::{STATES, broken};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// One rank's file.
pub(crate) struct Shard {
    pub path: PathBuf,
    pub rank: Rank,
    pub stage: usize,
    pub groups: Vec<Group>,
    pub round_robin: bool,
    /// Whether parameters are aligned one by one in the flat buffer.
    pub aligned: bool,
    /// What is wrong with it if it names a different rank inside.
    pub misnamed: Option<String>,
    /// The version of DeepSpeed, and settings of the optimizer that all ranks share.
    pub settings: String,
    /// The checksums of all numbers.
    pub sums: Vec<u32>,
    /// Entries of the file that nothing here knows.
    pub unknown: BTreeSet<String>,
}

/// The slice of one flat buffer.
pub(crate) struct Group {
    /// In the order of [`STATES`]. Before the optimizer's first step there is only the first.
    pub states: Vec<Stored>,
    pub step: Option<Step>,
    /// Elements at the slice's end that belong to no parameter, by the file's own account. It can
    /// be wrong.
    pub padding: Option<i64>,
    /// Elements of the slice that each parameter has here.
    pub fragments: BTreeMap<String, Range<usize>>,
    /// States of the optimizer that a universal checkpoint has no place for.
    pub more: Vec<String>,
}

/// Steps that the optimizer has taken, as the file has them: a tensor of one element, or a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub value: f64,
    pub tensor: Option<(Dtype, Vec<u8>)>,
}

impl Group {
    /// The size of the slice.
    pub fn numel(&self) -> usize {
        self.states.iter().map(Stored::numel).max().unwrap_or(0)
    }
}

impl Shard {
    /// Reads a file, and compares its numbers with their checksums. `shapes` are the parameters of
    /// each flat buffer, which stage 3 needs. `ranks` share them.
    pub fn read(
        path: &Path,
        rank: Rank,
        ranks: usize,
        shapes: &[Shapes],
    ) -> Result<Shard, BadInput> {
        let file = TorchFile::open(path)?;
        file.ensure_undamaged()?;
        let root = file.graph.root();
        let state = need(path, root, "optimizer_state_dict")?;
        // The optimizer of bf16 records no stage: it is of stage 1.
        let Some(stage) = state.get("zero_stage").map_or(Some(1), stage) else {
            return Err(broken(path, "it is of no stage of ZeRO that is known"));
        };
        // One number, or a list with one for each group.
        let counts = state.get("partition_count").into_iter();
        let mut counts = counts.flat_map(|count| count.items().chain([count]));
        let other = counts.find_map(|count| count.int().filter(|count| *count != ranks as i64));
        if let Some(count) = other {
            let how =
                format!("it is one of {count} slices, and the folder has files of {ranks} ranks");
            let error = broken(path, how);
            if !(1..ranks as i64).contains(&count) {
                return Err(error);
            }
            let help = format!(
                "if an earlier save has left the files of ranks {count} to {}, delete them: zero_pp_rank_{count}_… and higher",
                ranks - 1
            );
            return Err(BadInput { help, ..error });
        }
        let groups = if stage == 3 {
            stage3(&file, state, rank, ranks, shapes)?
        } else {
            stage12(&file, state)?
        };
        for group in &groups {
            ensure_inside(path, group)?;
            ensure_apart(path, &group.fragments)?;
        }
        let levels = [Some(root), Some(state), optimizer(state)].into_iter().flatten();
        let unknown = levels.flat_map(|level| unknown(level, SHARD)).collect();
        let aligned = state.get("param_alignment_paddings").into_iter().flat_map(Node::items);
        let aligned = aligned.flat_map(Node::items).any(|padding| padding.int() != Some(0));
        Ok(Shard {
            path: path.to_path_buf(),
            rank,
            stage,
            round_robin: round_robin(root),
            aligned,
            misnamed: misnamed(path, rank, file.written_as()),
            settings: settings(root, state),
            sums: file.sums(),
            unknown,
            groups,
        })
    }
}

/// The optimizer's own dictionary.
pub(crate) fn optimizer(state: Node) -> Option<Node> {
    let keys = ["optimizer_state_dict", "base_optimizer_state"];
    keys.into_iter().find_map(|key| state.get(key))
}

/// What all ranks have in common, if they are of one run and one step.
fn settings(root: Node, state: Node) -> String {
    let groups = optimizer(state).and_then(|of| of.get("param_groups"));
    let version = root.get("ds_version").and_then(Node::text).unwrap_or("of no recorded version");
    let mut settings = format!("DeepSpeed {version}");
    for group in groups.into_iter().flat_map(Node::items).take(1000) {
        for key in ["lr", "betas", "eps", "weight_decay"] {
            let value = group.get(key);
            // The betas are a list of two.
            let numbers = value.into_iter().flat_map(|value| value.items().chain([value]));
            let numbers: Vec<f64> = numbers.filter_map(Node::float).take(2).collect();
            settings += &format!(", {key} {numbers:?}");
        }
    }
    settings
}

/// The number of a stage. Python stores a member of an enumeration by its number, or some versions
/// by its name.
fn stage(node: Node) -> Option<usize> {
    const NAMES: [&str; 4] = ["disabled", "optimizer_states", "gradients", "weights"];
    let by_name = |node: Node| {
        let (_, args) = node.call()?;
        let name = args.items().nth(1)?.text()?;
        NAMES.iter().position(|known| *known == name)
    };
    node.count().or_else(|| by_name(node)).filter(|stage| (1..=3).contains(stage))
}

fn tensor(file: &TorchFile, node: Option<Node>, what: &str) -> Result<Stored, BadInput> {
    let found = match node {
        Some(node) => file.tensor(node)?,
        None => None,
    };
    found.ok_or_else(|| broken(file.path(), format!("it has no tensor {what}")))
}

/// The optimizer's states by group. A file can list so many that a search for each would not end.
fn by_group(states: Node) -> HashMap<usize, Node> {
    states.entries().filter_map(|(key, of)| Some((key.count()?, of))).collect()
}

/// The states of flat buffer `at`, without its fragments. `of` is what the optimizer has of it.
fn group(file: &TorchFile, of: Option<Node>, fp32: Node, at: usize) -> Result<Group, BadInput> {
    let path = file.path();
    let mut states = vec![tensor(file, Some(fp32), &format!("fp32 of group {at}"))?];
    let mut more: Vec<String> = of.into_iter().flat_map(|of| unknown(of, "step")).collect();
    // Before the optimizer's first step it has none.
    let moments = if more.is_empty() { &[] } else { &STATES[1..] };
    for name in moments {
        if !more.iter().any(|key| key == name) {
            let what = format!(
                "{} cannot be converted: group {at} has {} and no {name}: its optimizer is not Adam",
                path.display(),
                more.join(", ")
            );
            let help = "only Adam's states can be converted: resume on as many ranks as have saved";
            return Err(BadInput::new(what, help));
        }
        let found = of.and_then(|of| of.get(name));
        states.push(tensor(file, found, &format!("{name} of group {at}"))?);
    }
    more.retain(|key| !moments.contains(&key.as_str()));
    let mut named = states.iter().zip(STATES);
    if let Some((state, name)) = named.find(|(state, _)| state.shape.len() != 1) {
        let shape = &state.shape;
        let how = format!("{name} of group {at} has shape {shape:?}, not one dimension");
        return Err(broken(path, how));
    }
    let step = step(file, of)?;
    let fragments = BTreeMap::new();
    Ok(Group { states, step, padding: None, fragments, more })
}

fn stage12(file: &TorchFile, state: Node) -> Result<Vec<Group>, BadInput> {
    let path = file.path();
    let base = need(path, state, "base_optimizer_state")?;
    let Some(of_groups) = base.get("state") else {
        let what = format!(
            "{} was saved with elastic_checkpoint, which cannot be converted",
            path.display()
        );
        let help = "load it in DeepSpeed with as many ranks, set elastic_checkpoint to false and save it again";
        return Err(BadInput::new(what, help));
    };
    let fp32: Vec<Node> = need(path, state, "single_partition_of_fp32_groups")?.items().collect();
    let Some(mappings) = state.get("param_slice_mappings") else {
        let what = format!("{} has no param_slice_mappings", path.display());
        let help = "DeepSpeed writes them since 0.8: load the checkpoint with a newer one and save it again";
        return Err(BadInput::new(what, help));
    };
    let mappings: Vec<Node> = mappings.items().collect();
    if fp32.len() != mappings.len() {
        let how =
            format!("it has {} flat buffers, and fragments of {}", fp32.len(), mappings.len());
        return Err(broken(path, how));
    }
    let paddings = state.get("group_paddings").into_iter().flat_map(Node::items);
    let paddings: Vec<Node> = paddings.collect();
    let of_groups = by_group(of_groups);
    let mut groups = Vec::new();
    for (at, mapping) in mappings.into_iter().enumerate() {
        let group = group(file, of_groups.get(&at).copied(), fp32[at], at)?;
        let fragments = recorded(path, at, mapping)?;
        let padding = paddings.get(at).and_then(|padding| padding.int());
        groups.push(Group { padding, fragments, ..group });
    }
    Ok(groups)
}

/// The fragments of group `at` that a file lists.
fn recorded(
    path: &Path,
    at: usize,
    mapping: Node,
) -> Result<BTreeMap<String, Range<usize>>, BadInput> {
    let fragment = |(name, address): (Node, Node)| {
        let number = |key| address.attribute(key).and_then(Node::count);
        let (Some(name), Some(start), Some(numel)) =
            (name.text(), number("start"), number("numel"))
        else {
            return Err(broken(path, format!("a fragment of group {at} has no start and numel")));
        };
        ensure_name(path, name)?;
        Ok((name.to_string(), start..start.saturating_add(numel)))
    };
    mapping.entries().map(fragment).collect()
}

/// In stage 3 every parameter is divided by itself: each rank has as many elements of it, and the
/// last ranks fewer or none.
fn stage3(
    file: &TorchFile,
    state: Node,
    rank: Rank,
    ranks: usize,
    shapes: &[Shapes],
) -> Result<Vec<Group>, BadInput> {
    let path = file.path();
    let flat: Vec<Node> = need(path, state, "fp32_flat_groups")?.items().collect();
    let of_groups = state.get("optimizer_state_dict").and_then(|inner| inner.get("state"));
    let of_groups = of_groups.map(by_group).unwrap_or_default();
    let partitions = state.get("ds_zero_partition_groups");
    for partition in partitions.into_iter().flat_map(Node::items) {
        for (key, expected) in [("partition_count", ranks), ("partition_rank", rank.dp)] {
            let found = partition.get(key).and_then(Node::int).unwrap_or(expected as i64);
            if found != expected as i64 {
                return Err(broken(path, format!("its {key} is {found}, and not {expected}")));
            }
        }
    }
    let mut groups = Vec::new();
    for (at, fp32) in flat.iter().enumerate() {
        groups.push(group(file, of_groups.get(&at).copied(), *fp32, at)?);
    }
    if groups.is_empty() {
        return Err(broken(path, "it has no fp32_flat_groups"));
    }
    // Large groups are divided into several flat buffers. Files list the parameters of each, or of
    // all of them together.
    let per_buffer = shapes.len() == groups.len();
    let mut buffer = 0;
    let mut offset = 0;
    for (at, group) in shapes.iter().enumerate() {
        if per_buffer {
            buffer = at;
            offset = 0;
        }
        for (name, shape) in group {
            let numel: usize = shape.iter().product();
            let part = numel.div_ceil(ranks);
            if !per_buffer && offset >= groups[buffer].numel() && buffer + 1 < groups.len() {
                buffer += 1;
                offset = 0;
            }
            let kept = part.min(numel.saturating_sub(rank.dp * part));
            let range = offset..offset + kept;
            groups[buffer].fragments.insert(name.clone(), range);
            offset += part;
        }
    }
    Ok(groups)
}

/// Refuses fragments with common elements. Each element belongs to one parameter.
fn ensure_apart(path: &Path, fragments: &BTreeMap<String, Range<usize>>) -> Result<(), BadInput> {
    let mut ranges: Vec<_> = fragments.iter().filter(|(_, range)| !range.is_empty()).collect();
    ranges.sort_by_key(|(_, range)| range.start);
    match ranges.windows(2).find(|pair| pair[1].1.start < pair[0].1.end) {
        Some([(a, first), (b, second)]) => {
            let how = format!("{a} has the elements {first:?} of its slice, and {b} {second:?}");
            Err(broken(path, how))
        }
        _ => Ok(()),
    }
}

/// Refuses fragments that are longer than a state.
fn ensure_inside(path: &Path, group: &Group) -> Result<(), BadInput> {
    for (state, kind) in group.states.iter().zip(STATES) {
        let numel = state.numel();
        if let Some((name, range)) = group.fragments.iter().find(|(_, range)| range.end > numel) {
            let Range { start, end } = range;
            let how = format!("{kind} of {name} would be elements {start} to {end} of {numel}");
            return Err(broken(path, how));
        }
    }
    Ok(())
}

/// The step of an optimizer's state.
fn step(file: &TorchFile, of: Option<Node>) -> Result<Option<Step>, BadInput> {
    let Some(node) = of.and_then(|of| of.get("step")) else {
        return Ok(None);
    };
    if let Some(value) = node.float() {
        return Ok(Some(Step { value, tensor: None }));
    }
    let Some(stored) = file.tensor(node)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; stored.dtype.size()];
    if stored.numel() != 1 {
        return Err(broken(file.path(), format!("its step has {} elements", stored.numel())));
    }
    stored.read(0..1, &mut bytes)?;
    let value = stored.dtype.to_f32(&bytes);
    let value = f32::from_le_bytes(value[..].try_into().unwrap_or_default()).into();
    Ok(Some(Step { value, tensor: Some((stored.dtype, bytes)) }))
}

#[cfg(test)]
mod tests {
    use super::stage;
    use crate::torch::{Graph, Value};

    #[test]
    fn stages_are_stored_by_number_or_by_name() {
        let mut graph = Graph::default();
        let class = graph.class("deepspeed", "ZeroStageEnum");
        let get = graph.class("builtins", "getattr");
        let name = graph.text("gradients");
        let three = graph.push(Value::Int(3));
        let by_number = graph.call(class, vec![three]);
        let by_name = graph.call(get, vec![class, name]);
        let stages = [by_number, by_name, three, name, graph.root].map(|id| stage(graph.node(id)));
        assert_eq!(stages, [Some(3), Some(2), Some(3), None, None]);
    }
}
