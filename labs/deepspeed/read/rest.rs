//! The model's tensors that the optimizer does not have: frozen weights, buffers, and second names
//! of parameters.

use super::model::ensure_name;
use super::source::Source;
use crate::broken;
use crate::torch::{Dtype, Stored, TorchFile};
use shardlab::error::BadInput;
use std::collections::{BTreeMap, BTreeSet};

/// One tensor: the parts of all ranks of tensor parallelism.
pub(crate) struct Whole {
    pub name: String,
    pub parts: Vec<Pieces>,
}

/// One rank's part. Its elements are in several places of files, one place after the other.
pub(crate) struct Pieces {
    pub mp: usize,
    pub shape: Vec<usize>,
    pub stored: Vec<Stored>,
}

/// All such tensors.
#[derive(Default)]
pub(crate) struct Rest {
    /// Weights: frozen, or in no group of the optimizer although they require a gradient.
    pub weights: Vec<Whole>,
    /// Weights of which no file has the value.
    pub lost: BTreeSet<String>,
    /// Tensors of a type that is not known here.
    pub unread: BTreeSet<String>,
    pub buffers: BTreeSet<String>,
    /// Tensors of a pipeline's layers: frozen weights or buffers, which their files do not say.
    pub of_layers: BTreeSet<String>,
}

impl Pieces {
    pub fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn dtype(&self) -> Dtype {
        self.stored.first().map_or(Dtype::F32, |stored| stored.dtype)
    }

    /// Reads its elements, without the padding after them.
    pub fn read(&self) -> Result<Vec<u8>, BadInput> {
        let size = self.dtype().size();
        let mut bytes = vec![0; self.numel() * size];
        let mut begin = 0;
        for stored in &self.stored {
            let count = stored.numel().min(self.numel() - begin);
            stored.read(0..count, &mut bytes[begin * size..(begin + count) * size])?;
            begin += count;
        }
        Ok(bytes)
    }
}

impl Source {
    /// Finds these tensors.
    pub fn rest(&self) -> Result<Rest, BadInput> {
        let groups = self.models.iter().flat_map(|model| model.groups.iter().flatten());
        let trained: BTreeMap<&str, &Vec<usize>> =
            groups.map(|(name, shape)| (name.as_str(), shape)).collect();
        // Only the first rank of all lists second names.
        let aliases: BTreeSet<&str> = self
            .models
            .iter()
            .flat_map(|model| &model.aliases)
            .map(String::as_str)
            .collect();
        let mut rest = Rest::default();
        let mut weights: BTreeMap<&str, Vec<Option<Pieces>>> = BTreeMap::new();
        for (mp, model) in self.models.iter().enumerate() {
            let listed = model.weights.keys().chain(&model.unread).map(String::as_str);
            let names: BTreeSet<&str> = listed.chain(model.frozen_names()).collect();
            for name in names {
                if trained.contains_key(name) || aliases.contains(name) {
                    continue;
                }
                if model.unread.iter().any(|unread| unread == name) {
                    rest.unread.insert(name.to_string());
                    continue;
                }
                // PyTorch's name for what a module saves beside its tensors.
                if model.buffers.contains(name) || name.ends_with("_extra_state") {
                    rest.buffers.insert(name.to_string());
                } else if let Some(pieces) = self.pieces(mp, name)? {
                    ensure_name(&model.path, name)?;
                    let parts =
                        weights.entry(name).or_insert_with(|| (0..self.tp).map(|_| None).collect());
                    parts[mp % self.tp].get_or_insert(pieces);
                } else {
                    rest.lost.insert(name.to_string());
                }
            }
        }
        // A pipeline's layers have files of their own, with names within the layer.
        let mut known = false;
        for (layer, path) in &self.files.layers {
            let file = TorchFile::open(path)?;
            for (key, value) in file.graph.root().entries() {
                let (Some(key), Ok(Some(tensor))) = (key.text(), file.tensor(value)) else {
                    continue;
                };
                let name = format!("{layer}.{key}");
                let tied = |(name, shape): (&&str, &&Vec<usize>)| {
                    let same = name.starts_with("tied_modules.") && name.ends_with(key);
                    same && **shape == tensor.shape
                };
                if trained.contains_key(&*name) || trained.iter().any(tied) {
                    known = true;
                } else {
                    rest.of_layers.insert(name);
                }
            }
        }
        // Other names than DeepSpeed's would make all of them strange.
        if !known {
            rest.of_layers.clear();
        }
        for (name, parts) in weights {
            if let Some(tp) = parts.iter().position(Option::is_none) {
                let how = format!("tp rank {tp} of {} has nothing of {name}", self.tp);
                return Err(broken(&self.files.folder, how));
            }
            let parts = parts.into_iter().flatten().collect();
            rest.weights.push(Whole { name: name.to_string(), parts });
        }
        Ok(rest)
    }

    /// A rank's part of a weight that the optimizer does not have. `None` if it is in no file.
    fn pieces(&self, mp: usize, name: &str) -> Result<Option<Pieces>, BadInput> {
        let model = &self.models[mp];
        let part = |shape: &[usize], stored| Some(Pieces { mp, shape: shape.to_vec(), stored });
        let whole = model.weights.get(name);
        let Some((_, shape)) = model.frozen.iter().find(|(frozen, _)| frozen == name) else {
            // In stage 3 a weight that ranks divide is empty there.
            let whole = whole.filter(|whole| self.stage < 3 || whole.numel() > 0);
            return Ok(whole.and_then(|whole| part(&whole.shape, vec![whole.clone()])));
        };
        let numel: usize = shape.iter().product();
        let fragments: Vec<Stored> =
            model.fragments.get(name).into_iter().flatten().cloned().collect();
        let found: usize = fragments.iter().map(Stored::numel).sum();
        let same = fragments.iter().all(|fragment| fragment.dtype == fragments[0].dtype);
        let ranks = if self.stage == 3 { self.files.dp } else { 1 };
        if fragments.len() == ranks && found >= numel && same {
            return Ok(part(shape, fragments));
        }
        if let Some(whole) = whole.filter(|whole| whole.shape == *shape) {
            return Ok(part(shape, vec![whole.clone()]));
        }
        let how = format!(
            "frozen {name} has shape {shape:?} there, and {} fragments of {found} elements, from {ranks} ranks",
            fragments.len()
        );
        Err(broken(&model.path, how))
    }
}
