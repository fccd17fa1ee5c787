//! A file of model states: shapes of the parameters, rules of tensor parallelism, the weights that
//! the model computed with, and those that are frozen.

use super::kind::{Rank, misnamed};
use crate::broken;
use crate::know::{Rules, Shapes, unknown_of_model};
use crate::torch::{Node, Stored, TorchFile, Value};
use shardlab::checkpoint::numel;
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// What a model with experts records.
const EXPERTS: [&str; 4] = ["ds_autoep_layers", "autoep_layers", "num_experts", "folding"];

pub(crate) struct Model {
    pub path: PathBuf,
    pub groups: Vec<Shapes>,
    /// Rules for putting parameters together.
    pub rules: Rules,
    /// Tensors of the model as it computes, by name.
    pub weights: BTreeMap<String, Stored>,
    /// Names of tensors that cannot be read: of an unknown type, or with gaps between their
    /// elements.
    pub unread: BTreeSet<String>,
    /// Shapes of the weights that are frozen. Stage 1 records none.
    pub frozen: BTreeMap<String, Vec<usize>>,
    /// The frozen weights' numbers, one after the other: in stage 3 each rank has a part, and
    /// padding ends the last.
    pub fragments: BTreeMap<String, Vec<Stored>>,
    /// Whether frozen weights were left out: `exclude_frozen_parameters`.
    pub without_frozen: bool,
    /// Names of the model's buffers.
    pub buffers: BTreeSet<String>,
    /// Second names of parameters.
    pub aliases: BTreeSet<String>,
    /// Entries of the file that nothing here knows.
    pub unknown: BTreeSet<String>,
    /// Steps that the run had made.
    pub steps: Option<i64>,
    /// Ranks of pipeline and tensor parallelism.
    pub degrees: Option<(usize, usize)>,
    pub round_robin: bool,
    /// What is wrong with files that name a different rank inside.
    pub misnamed: Vec<String>,
}

impl Model {
    /// Reads a rank's file, and compares its numbers with their checksums.
    pub fn read(path: &Path, rank: Rank) -> Result<Model, BadInput> {
        let file = TorchFile::open(path)?;
        file.ensure_undamaged()?;
        let root = file.graph.root();
        let shapes = need(path, root, "param_shapes")?;
        // A model without experts has an empty list of their numbers.
        let none = |of: Node| of.is_none() || *of.value() == Value::List(vec![]);
        let has = |key: &&str| root.get(key).is_some_and(|experts| !none(experts));
        if EXPERTS.iter().any(has) {
            let how = "its experts are divided among ranks, which is not supported";
            return Err(broken(path, how));
        }
        let groups = shapes
            .items()
            .map(|group| self::shapes(path, group))
            .collect::<Result<Vec<_>, _>>()?;
        let info = root.get("universal_checkpoint_info").filter(|info| !info.is_none());
        let rules = info.map(Rules::read).transpose().map_err(|how| broken(path, how))?;
        let (weights, mut unread) = tensors(&file, root.get("module"));
        let (fragments, mut more) = tensors(&file, root.get("frozen_param_fragments"));
        unread.append(&mut more);
        let frozen = root.get("frozen_param_shapes");
        let frozen_shapes = frozen.map(|frozen| self::shapes(path, frozen)).transpose()?;
        let buffers = root.get("buffer_names").into_iter().flat_map(Node::items);
        let aliases = root.get("shared_params").into_iter().flat_map(Node::entries);
        let text = |name: Node| Some(name.text()?.to_string());
        let degree = |name: &str| {
            let degrees = root.get("checkpoint_parallel_dimensions")?;
            degrees.get(name)?.count()
        };
        Ok(Model {
            path: path.to_path_buf(),
            groups,
            rules: rules.unwrap_or_default(),
            weights,
            unread,
            frozen: frozen_shapes.into_iter().flatten().collect(),
            fragments: fragments.into_iter().map(|(name, part)| (name, vec![part])).collect(),
            without_frozen: frozen.is_some_and(Node::is_none),
            buffers: buffers.filter_map(text).collect(),
            aliases: aliases.filter_map(|(name, _)| text(name)).collect(),
            unknown: unknown_of_model(root),
            steps: root.get("global_steps").and_then(Node::int),
            degrees: degree("pp_degree").zip(degree("tp_degree")),
            round_robin: round_robin(root),
            misnamed: misnamed(path, rank, file.written_as()).into_iter().collect(),
        })
    }
}

/// An entry that a file cannot do without.
pub(crate) fn need<'a>(path: &Path, node: Node<'a>, key: &str) -> Result<Node<'a>, BadInput> {
    let found = node.get(key).filter(|found| !found.is_none());
    found.ok_or_else(|| broken(path, format!("it has no {key}")))
}

/// The tensors of a dictionary by name, and the names of those that cannot be read: of an unknown
/// type, or with gaps between their elements. They cannot be compared, and nothing else is wrong.
pub(super) fn tensors(
    file: &TorchFile,
    of: Option<Node>,
) -> (BTreeMap<String, Stored>, BTreeSet<String>) {
    let mut tensors = BTreeMap::new();
    let mut unread = BTreeSet::new();
    for (name, value) in of.into_iter().flat_map(Node::entries) {
        let Some(name) = name.text() else { continue };
        match file.tensor(value) {
            Ok(Some(tensor)) => drop(tensors.insert(name.to_string(), tensor)),
            Ok(None) => {}
            Err(_) => drop(unread.insert(name.to_string())),
        }
    }
    (tensors, unread)
}

/// Whether the run divided gradients by turns.
pub(crate) fn round_robin(root: Node) -> bool {
    let zero = root.get("ds_config").and_then(|config| config.get("zero_optimization"));
    let value = zero.and_then(|zero| zero.get("round_robin_gradients"));
    value.is_some_and(|value| *value.value() == Value::Bool(true))
}

fn shapes(path: &Path, group: Node) -> Result<Shapes, BadInput> {
    let mut names = HashSet::new();
    let mut total = 0;
    let shape = |(name, shape): (Node, Node)| {
        let (Some(name), Some(shape)) = (name.text(), shape.sizes()) else {
            return Err(broken(path, "its param_shapes are not names with shapes"));
        };
        ensure_name(path, name)?;
        let Some(numel) = numel(&shape) else {
            return Err(broken(path, format!("{name} has the absurd shape {shape:?}")));
        };
        total += numel;
        if total as u64 > 1 << 50 {
            return Err(broken(path, "its param_shapes have absurdly many elements together"));
        }
        if !names.insert(name.to_string()) {
            return Err(broken(path, format!("its param_shapes list {name} twice")));
        }
        Ok((name.to_string(), shape))
    };
    group.entries().map(shape).collect()
}

/// Refuses a parameter whose name cannot be the name of a folder. Nothing is written outside the
/// output folder.
pub(crate) fn ensure_name(path: &Path, name: &str) -> Result<(), BadInput> {
    let harmless = |c: char| !c.is_control() && !matches!(c, '/' | '\\' | ':');
    // The file that all parameters share has that name.
    let taken = name == "optimizer_state.pt";
    if name.is_empty()
        || name.len() > 200
        || name.starts_with('.')
        || taken
        || !name.chars().all(harmless)
    {
        return Err(broken(path, format!("its parameter {name:?} cannot be the name of a folder")));
    }
    Ok(())
}
