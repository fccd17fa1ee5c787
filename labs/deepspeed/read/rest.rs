//! The model's tensors that the optimizer does not have: frozen weights, buffers, and second names
//! of parameters.

use super::kind::Rank;
use super::model::{ensure_name, tensors};
use super::source::Source;
use crate::broken;
use crate::know::Part;
use crate::torch::{Stored, TorchFile};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet};

/// A weight: the parts of all ranks of tensor parallelism.
pub(crate) struct Whole {
    pub name: String,
    pub parts: Vec<Pieces>,
}

/// One rank's part. Its elements are in several places of files, one place after the other.
pub(crate) struct Pieces {
    pub shape: Vec<usize>,
    stored: Vec<Stored>,
}

/// All such tensors.
#[derive(Default)]
pub(crate) struct Rest {
    /// Weights: frozen, or in no group of the optimizer although they require a gradient.
    pub weights: Vec<Whole>,
    /// What else the model's files have a value of: buffers, and second names.
    pub copied: BTreeMap<String, Stored>,
    pub buffers: BTreeSet<String>,
    /// Weights of which no file has the value.
    pub lost: BTreeSet<String>,
    /// Tensors of a type that is not known here.
    pub unread: BTreeSet<String>,
    /// Tensors of a pipeline's layers: frozen weights or buffers, which their files do not say.
    pub of_layers: BTreeSet<String>,
}

/// The parameters of the optimizer, with their shapes.
type Trained<'a> = BTreeMap<&'a String, &'a Vec<usize>>;

impl Pieces {
    /// Reads its elements as f32, without the padding after them.
    pub fn read(&self) -> Result<Part, BadInput> {
        let mut numbers = Vec::new();
        for stored in &self.stored {
            let mut bytes = vec![0; stored.numel() * stored.dtype.size()];
            stored.read(0..stored.numel(), &mut bytes)?;
            numbers.extend_from_slice(&stored.dtype.to_f32(&bytes));
        }
        numbers.truncate(self.shape.iter().product::<usize>() * size_of::<f32>());
        Ok(Part { shape: self.shape.clone(), bytes: numbers })
    }
}

impl Source {
    /// Finds these tensors.
    pub fn rest(&self) -> Result<Rest, BadInput> {
        let groups = self.models.iter().flat_map(|model| model.groups.iter().flatten());
        let trained: Trained = groups.map(|(name, shape)| (name, shape)).collect();
        // Only the first rank of all lists second names.
        let aliases: BTreeSet<&String> =
            self.models.iter().flat_map(|model| &model.aliases).collect();
        let mut rest = Rest { of_layers: self.of_layers(&trained)?, ..Rest::default() };
        let mut weights = BTreeMap::<&String, BTreeMap<usize, Pieces>>::new();
        for (mp, model) in self.models.iter().enumerate() {
            let names = model.weights.keys().chain(&model.unread).chain(model.frozen.keys());
            for name in names.filter(|name| !trained.contains_key(name)) {
                let alias = aliases.contains(name);
                // PyTorch's name for what a module saves beside its tensors.
                let buffer = model.buffers.contains(name) || name.ends_with("_extra_state");
                if (alias || buffer)
                    && let Some(value) = model.weights.get(name)
                {
                    rest.copied.entry(name.clone()).or_insert_with(|| value.clone());
                }
                if alias {
                    continue;
                } else if model.unread.contains(name) {
                    rest.unread.insert(name.clone());
                } else if buffer {
                    rest.buffers.insert(name.clone());
                } else if let Some(pieces) = self.pieces(mp, name)? {
                    ensure_name(&model.path, name)?;
                    weights.entry(name).or_default().entry(mp % self.tp).or_insert(pieces);
                } else {
                    rest.lost.insert(name.clone());
                }
            }
        }
        for (name, parts) in weights {
            let parts = self.of_all(name, parts)?;
            rest.weights.push(Whole { name: name.clone(), parts });
        }
        Ok(rest)
    }

    /// A rank's part of a weight that the optimizer does not have. `None` if it is in no file.
    fn pieces(&self, mp: usize, name: &str) -> Result<Option<Pieces>, BadInput> {
        let model = &self.models[mp];
        let whole = model.weights.get(name);
        let Some(shape) = model.frozen.get(name) else {
            // In stage 3 a weight that ranks divide is empty there.
            let whole = whole.filter(|whole| self.stage < 3 || whole.numel() > 0);
            let pieces = |of: &Stored| Pieces { shape: of.shape.clone(), stored: vec![of.clone()] };
            return Ok(whole.map(pieces));
        };
        let mut stored = model.fragments.get(name).cloned().unwrap_or_default();
        let count = stored.len();
        let found: usize = stored.iter().map(Stored::numel).sum();
        let ranks = if self.stage == 3 { self.files.dp } else { 1 };
        let same = stored.iter().all(|part| part.dtype == stored[0].dtype);
        if count != ranks || found < shape.iter().product() || !same {
            let Some(whole) = whole.filter(|whole| whole.shape == *shape) else {
                let how = format!(
                    "frozen {name} has shape {shape:?} there, and {count} fragments of {found} elements, from {ranks} ranks"
                );
                return Err(broken(&model.path, how));
            };
            stored = vec![whole.clone()];
        }
        Ok(Some(Pieces { shape: shape.clone(), stored }))
    }

    /// Those of a pipeline's layers, which have files of their own, with names within the layer.
    fn of_layers(&self, trained: &Trained) -> Result<BTreeSet<String>, BadInput> {
        let mut of_layers = BTreeSet::new();
        let mut known = false;
        for (Rank { mp: layer, .. }, path) in &self.files.layers {
            let file = TorchFile::open(path)?;
            for (key, tensor) in tensors(&file, Some(file.graph.root())).0 {
                let name = format!("{layer}.{key}");
                let tied = trained.iter().any(|(name, shape)| {
                    let tied = name.starts_with("tied_modules.") && name.ends_with(&key);
                    tied && **shape == tensor.shape
                });
                if tied || trained.contains_key(&name) {
                    known = true;
                } else {
                    of_layers.insert(name);
                }
            }
        }
        // Other names than DeepSpeed's would make all of them strange.
        Ok(if known { of_layers } else { BTreeSet::new() })
    }
}
