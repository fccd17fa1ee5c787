//! A rank's slice of the optimizer's state: flat buffers, and the fragments of parameters in them.

use super::json::json;
use super::model::{ensure_name, round_robin};
use super::names::{Rank, rank_of};
use crate::know::{self, Shapes};
use crate::torch::{Dtype, Node, Stored, TorchFile};
use crate::{STATES, broken};
use shardlab::error::BadInput;
use shardlab::sha256;
use std::collections::{BTreeMap, HashMap};
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
    /// The rank that the file names inside.
    pub named: Option<Rank>,
    /// The version of DeepSpeed, and settings of the optimizer that all ranks share.
    pub settings: String,
    /// A hash of some of the numbers. Files with equal numbers have the same.
    pub sample: String,
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
    /// Whether the file lists the fragments.
    pub listed: bool,
    /// In stage 3, elements after a rank's part of a parameter that belong to none. The first few
    /// are enough.
    pub blank: Vec<Range<usize>>,
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
        state
            .ensure_bounded()
            .map_err(|how| broken(path, format!("its optimizer_state_dict {how}")))?;
        // The optimizer of bf16 records no stage: it is of stage 1.
        let Some(stage) = state.get("zero_stage").map_or(Some(1), stage) else {
            return Err(broken(path, "it is of no stage of ZeRO that is known"));
        };
        let counts =
            state.get("partition_count").map_or_else(Vec::new, |count| match count.int() {
                Some(count) => vec![count],
                None => count.items().filter_map(Node::int).collect(),
            });
        if let Some(count) = counts.iter().find(|count| **count != ranks as i64) {
            return Err(broken(
                path,
                format!("it is one of {count} slices, and the folder has files of {ranks} ranks"),
            ));
        }
        let groups = if stage == 3 {
            stage3(&file, state, rank, ranks, shapes)?
        } else {
            stage12(&file, state, rank, ranks, shapes)?
        };
        let aligned = state.get("param_alignment_paddings").into_iter().flat_map(Node::items);
        let aligned = aligned.flat_map(Node::items).any(|padding| padding.int() != Some(0));
        Ok(Shard {
            path: path.to_path_buf(),
            rank,
            stage,
            round_robin: round_robin(root),
            aligned,
            named: rank_of(file.written_as()),
            settings: settings(root, state),
            sample: sample(&groups)?,
            groups,
        })
    }
}

/// What all ranks have in common, if they are of one run and one step.
fn settings(root: Node, state: Node) -> String {
    let inner = ["optimizer_state_dict", "base_optimizer_state"]
        .into_iter()
        .find_map(|key| state.get(key));
    let groups = inner.and_then(|inner| inner.get("param_groups"));
    let of_group = |group: Node| -> serde_json::Value {
        let entry = |key| group.get(key).map(|value| (key.to_string(), json(value, 2, &mut 100)));
        ["lr", "betas", "eps", "weight_decay"].into_iter().filter_map(entry).collect()
    };
    let groups: Vec<serde_json::Value> =
        groups.into_iter().flat_map(Node::items).take(1000).map(of_group).collect();
    let version = root.get("ds_version").and_then(Node::text).unwrap_or("of no recorded version");
    format!("DeepSpeed {version}, {}", serde_json::Value::from(groups))
}

/// Stretches of padding that are remembered for each flat buffer.
const BLANK: usize = 16;

/// Elements of each state that are hashed.
const SAMPLE: usize = 1024;

/// A hash of the elements in the middle of every state.
fn sample(groups: &[Group]) -> Result<String, BadInput> {
    let mut bytes = Vec::new();
    for state in groups.iter().flat_map(|group| &group.states) {
        let numel = state.numel();
        let begin = numel.saturating_sub(SAMPLE) / 2;
        let range = begin..(begin + SAMPLE).min(numel);
        let at = bytes.len();
        bytes.extend(numel.to_le_bytes());
        bytes.resize(at + 8 + range.len() * state.dtype.size(), 0);
        state.read(range, &mut bytes[at + 8..])?;
    }
    Ok(sha256::hex(&bytes))
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
    let number = node.int().and_then(|number| usize::try_from(number).ok());
    number.or_else(|| by_name(node)).filter(|stage| (1..=3).contains(stage))
}

fn need<'a>(path: &Path, node: Node<'a>, key: &str) -> Result<Node<'a>, BadInput> {
    node.get(key).ok_or_else(|| broken(path, format!("it has no {key}")))
}

fn tensor(file: &TorchFile, node: Option<Node>, what: &str) -> Result<Stored, BadInput> {
    let found = match node {
        Some(node) => file.tensor(node)?,
        None => None,
    };
    found.ok_or_else(|| broken(file.path(), format!("it has no tensor {what}")))
}

/// The states of a flat buffer. `of` is the optimizer's state of it.
fn states(
    file: &TorchFile,
    of: Option<Node>,
    fp32: Node,
    group: usize,
) -> Result<Vec<Stored>, BadInput> {
    let mut states = vec![tensor(file, Some(fp32), &format!("fp32 of group {group}"))?];
    let of = of.filter(|of| of.entries().any(|(key, _)| key.text() != Some("step")));
    for name in of.iter().flat_map(|_| &STATES[1..]) {
        let found = of.and_then(|of| of.get(name));
        if let (None, Some(of)) = (found, of) {
            let keys: Vec<&str> = of.entries().filter_map(|(key, _)| key.text()).collect();
            let path = file.path().display();
            let keys = keys.join(", ");
            let what = format!(
                "{path} cannot be converted: group {group} has {keys} and no {name}: its optimizer is not Adam"
            );
            return Err(BadInput::new(
                what,
                "only Adam's states can be converted: resume on as many ranks as have saved",
            ));
        }
        states.push(tensor(file, found, &format!("{name} of group {group}"))?);
    }
    for (state, name) in states.iter().zip(STATES) {
        if state.shape.len() != 1 {
            return Err(broken(
                file.path(),
                format!("{name} of group {group} has shape {:?}, not one dimension", state.shape),
            ));
        }
    }
    Ok(states)
}

fn stage12(
    file: &TorchFile,
    state: Node,
    rank: Rank,
    ranks: usize,
    shapes: &[Shapes],
) -> Result<Vec<Group>, BadInput> {
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
    let mappings: Option<Vec<Node>> =
        state.get("param_slice_mappings").map(|mappings| mappings.items().collect());
    let count = mappings.as_ref().map_or(shapes.len(), Vec::len);
    if fp32.len() != count {
        return Err(broken(
            path,
            format!("it has {} flat buffers, and fragments of {count}", fp32.len()),
        ));
    }
    let paddings: Vec<Option<i64>> = state
        .get("group_paddings")
        .into_iter()
        .flat_map(Node::items)
        .map(Node::int)
        .collect();
    let of_groups: HashMap<i64, Node> =
        of_groups.entries().filter_map(|(key, of)| Some((key.int()?, of))).collect();
    let mut groups = Vec::new();
    for at in 0..count {
        let of = of_groups.get(&(at as i64)).copied();
        let states = states(file, of, fp32[at], at)?;
        let fragments = match &mappings {
            Some(mappings) => recorded(path, at, mappings[at])?,
            // Before version 0.8 the buffer has the model's order, and files do not list their
            // fragments.
            None => {
                let part = states.iter().map(Stored::numel).max().unwrap_or(0);
                know::fragments(&shapes[at], 0..shapes[at].len(), part, ranks).swap_remove(rank.dp)
            }
        };
        for (name, range) in &fragments {
            ensure_inside(path, name, range, &states)?;
        }
        ensure_apart(path, &fragments)?;
        let step = step(file, of)?;
        let padding = paddings.get(at).copied().flatten();
        let listed = mappings.is_some();
        groups.push(Group { states, step, padding, fragments, listed, blank: Vec::new() });
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
        let number = |key| {
            address
                .attribute(key)
                .and_then(Node::int)
                .and_then(|number| usize::try_from(number).ok())
        };
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
    let partitions: Vec<Node> = state
        .get("ds_zero_partition_groups")
        .into_iter()
        .flat_map(Node::items)
        .collect();
    let mut groups = Vec::new();
    for (at, fp32) in flat.iter().enumerate() {
        let of = of_groups.and_then(|groups| groups.get_at(at as i64));
        let states = states(file, of, *fp32, at)?;
        let step = step(file, of)?;
        let fragments = BTreeMap::new();
        let blank = Vec::new();
        groups.push(Group { states, step, padding: None, fragments, listed: true, blank });
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
        let partition = |key: &str, default: usize| {
            let partition =
                partitions.get(at).and_then(|partition| partition.get(key)).and_then(Node::int);
            partition.and_then(|value| usize::try_from(value).ok()).unwrap_or(default)
        };
        let count = partition("partition_count", ranks).max(1);
        let number = partition("partition_rank", rank.dp);
        for (name, shape) in group {
            let numel: usize = shape.iter().product();
            let part = numel.div_ceil(count);
            if !per_buffer && offset >= groups[buffer].numel() && buffer + 1 < groups.len() {
                buffer += 1;
                offset = 0;
            }
            let kept = part.min(numel.saturating_sub(number.saturating_mul(part)));
            let range = offset..offset + kept;
            ensure_inside(path, name, &range, &groups[buffer].states)?;
            groups[buffer].fragments.insert(name.clone(), range);
            let few = groups[buffer].blank.len() < BLANK;
            if few && kept < part && offset + part <= groups[buffer].numel() {
                groups[buffer].blank.push(offset + kept..offset + part);
            }
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

fn ensure_inside(
    path: &Path,
    name: &str,
    range: &Range<usize>,
    states: &[Stored],
) -> Result<(), BadInput> {
    for (state, kind) in states.iter().zip(STATES) {
        if range.end > state.numel() {
            let Range { start, end } = range;
            let how =
                format!("{kind} of {name} would be elements {start} to {end} of {}", state.numel());
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
    let value = match stored.dtype {
        Dtype::F32 => f32::from_le_bytes(bytes[..4].try_into().unwrap_or_default()).into(),
        Dtype::I64 => i64::from_le_bytes(bytes[..8].try_into().unwrap_or_default()) as f64,
        Dtype::F64 => f64::from_le_bytes(bytes[..8].try_into().unwrap_or_default()),
        Dtype::I32 => i32::from_le_bytes(bytes[..4].try_into().unwrap_or_default()).into(),
        other => {
            return Err(broken(file.path(), format!("its step is a tensor of {}", other.name())));
        }
    };
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
