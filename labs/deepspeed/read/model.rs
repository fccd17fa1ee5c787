//! A file of model states: shapes of the parameters, rules of tensor parallelism, the weights that
//! the model computed with, and those that are frozen.

use super::kind::{Rank, rank_of};
use crate::broken;
use crate::know::{Rules, Shapes, unknown_of_model};
use crate::torch::{Node, Stored, TorchFile, Value};
use shardlab::checkpoint::numel;
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

pub(crate) struct Model {
    pub path: PathBuf,
    pub groups: Vec<Shapes>,
    /// Rules for putting parameters together, if the file has any.
    pub rules: Option<Rules>,
    /// Tensors of the model as it computes, by name.
    pub weights: BTreeMap<String, Stored>,
    /// Names of tensors that cannot be read: of an unknown type, or with gaps between their
    /// elements.
    pub unread: Vec<String>,
    /// Shapes of the weights that are frozen. Stage 1 records none.
    pub frozen: Shapes,
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
    /// The rank that the file names inside.
    pub named: Option<Rank>,
}

impl Model {
    pub fn frozen_names(&self) -> impl Iterator<Item = &str> {
        self.frozen.iter().map(|(name, _)| name.as_str())
    }

    /// Reads a file, and compares its numbers with their checksums.
    pub fn read(path: &Path) -> Result<Model, BadInput> {
        let file = TorchFile::open(path)?;
        file.ensure_undamaged()?;
        let root = file.graph.root();
        let Some(shapes) = root.get("param_shapes").filter(|shapes| !shapes.is_none()) else {
            return Err(broken(path, "it has no param_shapes"));
        };
        for experts in ["ds_autoep_layers", "autoep_layers", "num_experts", "folding"] {
            let experts = root.get(experts).filter(|experts| !experts.is_none());
            // A model without experts has an empty list of their numbers.
            let none = |experts: Node| *experts.value() == Value::List(vec![]);
            if experts.is_some_and(|experts| !none(experts)) {
                return Err(broken(
                    path,
                    "its experts are divided among ranks, which is not supported",
                ));
            }
        }
        let groups = shapes
            .items()
            .map(|group| self::shapes(path, group))
            .collect::<Result<Vec<_>, _>>()?;
        let rules = root.get("universal_checkpoint_info").filter(|info| !info.is_none());
        let mut weights = BTreeMap::new();
        let mut unread = Vec::new();
        for (name, value) in root.get("module").into_iter().flat_map(Node::entries) {
            let Some(name) = name.text() else { continue };
            match file.tensor(value) {
                Ok(Some(weight)) => drop(weights.insert(name.to_string(), weight)),
                Ok(None) => {}
                // A tensor of an unknown type cannot be compared, and nothing else is wrong with
                // it.
                Err(_) => unread.push(name.to_string()),
            }
        }
        let frozen = root.get("frozen_param_shapes");
        let mut fragments = BTreeMap::new();
        for (name, value) in root.get("frozen_param_fragments").into_iter().flat_map(Node::entries)
        {
            let Some(name) = name.text() else { continue };
            match file.tensor(value) {
                Ok(found) => drop(fragments.insert(name.to_string(), Vec::from_iter(found))),
                Err(_) => unread.push(name.to_string()),
            }
        }
        let text = |name: Node| Some(name.text()?.to_string());
        let degree = |name: &str| {
            let degrees = root.get("checkpoint_parallel_dimensions")?;
            degrees.get(name)?.count()
        };
        Ok(Model {
            path: path.to_path_buf(),
            groups,
            rules: rules
                .map(|info| Rules::read(info).map_err(|how| broken(path, how)))
                .transpose()?,
            weights,
            unread,
            frozen: frozen.map_or_else(|| Ok(Vec::new()), |frozen| self::shapes(path, frozen))?,
            fragments,
            without_frozen: frozen.is_some_and(Node::is_none),
            buffers: {
                let names = root.get("buffer_names").into_iter().flat_map(Node::items);
                names.filter_map(text).collect()
            },
            aliases: {
                let names = root.get("shared_params").into_iter().flat_map(Node::entries);
                names.filter_map(|(name, _)| text(name)).collect()
            },
            unknown: unknown_of_model(root),
            steps: root.get("global_steps").and_then(Node::int),
            degrees: degree("pp_degree").zip(degree("tp_degree")),
            round_robin: round_robin(root),
            named: rank_of(file.written_as()),
        })
    }
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
