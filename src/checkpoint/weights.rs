//! Saves and loads a model's weights: one safetensors file, with the model's shape and vocabulary
//! in the header.

use crate::error::BadInput;
use crate::files;
use crate::plan::ModelShape;
use crate::tensor::{Cut, Params, Whole};
use anyhow::{Context, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The file's name in a run's folder.
pub const FILE: &str = "model.safetensors";

/// The key of a safetensors header under which a weights file keeps its [`Description`], as JSON.
const DESCRIPTION: &str = "description";

/// What a weights file says of its model.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// The model's shape.
    pub shape: ModelShape,
    /// All characters of the model's vocabulary, in the order of their tokens.
    pub vocabulary: String,
}

/// Writes the weights to `dir`. An earlier file is replaced only when the new one is complete. The
/// file contains whole tensors: shards on this rank are joined.
///
/// # Errors
/// If the parameters are not allocated, or the disk refuses.
pub fn save(dir: &Path, params: &Params, description: &Description) -> Result<PathBuf> {
    let values = params.whole()?;
    let mut wholes = BTreeMap::new();
    for spec in params.specs() {
        let here = &values[spec.range()];
        let Whole { name, shape, .. } = &spec.whole;
        if spec.cut == Cut::All {
            wholes.insert(name, (shape, Cow::Borrowed(here)));
            continue;
        }
        let zeros = || (shape, Cow::Owned(vec![0.0; shape.iter().product()]));
        let whole = wholes.entry(name).or_insert_with(zeros).1.to_mut();
        spec.runs(0..here.len(), |run, at| whole[at..at + run.len()].copy_from_slice(&here[run]));
    }
    let mut views = Vec::new();
    for (name, (shape, values)) in &wholes {
        let view = TensorView::new(Dtype::F32, shape.to_vec(), bytemuck::cast_slice(values))?;
        views.push((name.as_str(), view));
    }
    // Under one key: safetensors writes several in an order of chance, and equal weights would be
    // different files.
    let description = serde_json::to_string(description)?;
    let header = HashMap::from([(DESCRIPTION.to_string(), description)]);
    let bytes = safetensors::serialize(views, Some(header))?;
    let path = dir.join(FILE);
    std::fs::create_dir_all(dir)
        .and_then(|()| files::replace(&path, &bytes))
        .with_context(|| format!("cannot save weights to {}", path.display()))?;
    Ok(path)
}

/// Checks, before work starts, that weights can be saved to `dir`. Creates the folder if it does
/// not exist.
///
/// # Errors
/// If a file cannot be written there.
pub fn ensure_writable(dir: &Path) -> Result<(), BadInput> {
    std::fs::create_dir_all(dir)
        .and_then(|()| tempfile::tempfile_in(dir).map(drop))
        .map_err(|error| {
            let what = format!("cannot write to the folder {}: {error}", dir.display());
            BadInput::new(what, "give `out` a folder that you may write to")
        })
}

/// Reads the shape and vocabulary of the weights in `dir`.
///
/// # Errors
/// If there is no file of weights, or it is damaged, or a different program's.
pub fn describe(dir: &Path) -> Result<Description, BadInput> {
    let bytes = read(dir)?;
    let (_, header) =
        SafeTensors::read_metadata(&bytes).map_err(|error| broken(dir, &error.to_string()))?;
    let entries = header.metadata().clone().unwrap_or_default();
    let bad = |error: serde_json::Error| broken(dir, &error.to_string());
    let description: Description = match (entries.get(DESCRIPTION), entries.get("shape")) {
        (Some(text), _) => serde_json::from_str(text).map_err(bad)?,
        // Until November 2026.
        (None, Some(shape)) => Description {
            shape: serde_json::from_str(shape).map_err(bad)?,
            vocabulary: entries.get("vocabulary").cloned().unwrap_or_default(),
        },
        (None, None) => return Err(broken(dir, &format!("its header has no {DESCRIPTION}"))),
    };
    if !description.shape.is_gpt() {
        return Err(broken(dir, "its shape is not that of a GPT"));
    }
    Ok(description)
}

/// Reads the weights in `dir` into `params`, which must be allocated. Its parameters may be cuts of
/// the file's tensors.
///
/// # Errors
/// If there is no file of weights, it is damaged, or it is of a different model.
pub fn load(dir: &Path, params: &Params) -> Result<(), BadInput> {
    let bytes = read(dir)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| broken(dir, &error.to_string()))?;
    let mut values = params.values_mut();
    for spec in params.specs() {
        let whole = &spec.whole;
        let tensor = file
            .tensor(&whole.name)
            .map_err(|_| broken(dir, &format!("it has no {}", whole.name)))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != whole.shape {
            let dtype = tensor.dtype();
            let shape = tensor.shape();
            let why = format!("{} is {dtype:?} {shape:?}, not F32 {:?}", whole.name, whole.shape);
            return Err(broken(dir, &why));
        }
        let here = &mut values[spec.range()];
        spec.runs(0..here.len(), |run, at| {
            let bytes = &tensor.data()[4 * at..][..4 * run.len()];
            bytemuck::cast_slice_mut(&mut here[run]).copy_from_slice(bytes);
        });
    }
    Ok(())
}

fn read(dir: &Path) -> Result<files::Mapped, BadInput> {
    let path = dir.join(FILE);
    files::map(&path).map_err(|error| {
        let what = format!("cannot read weights from {}: {error}", path.display());
        BadInput::new(what, "give `init_from` the folder that an earlier run wrote (its `out`)")
    })
}

fn broken(dir: &Path, why: &str) -> BadInput {
    let what = format!("{} does not hold this lab's weights: {why}", dir.join(FILE).display());
    BadInput::new(what, "give `init_from` the folder that an earlier run of the same lab wrote")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Gpt, Tiled};
    use crate::plan::Family;

    fn model(embd: usize) -> (Gpt, Description) {
        let shape = ModelShape {
            vocabulary: 5,
            block: 4,
            layers: 1,
            heads: 2,
            embd,
            family: Family::Gpt,
            experts: None,
        };
        let gpt = Gpt::new(&shape).unwrap();
        gpt.params.allocate(3);
        (gpt, Description { shape, vocabulary: "\nabcd".to_string() })
    }

    #[test]
    fn weights_come_back_bitwise() {
        let dir = tempfile::tempdir().unwrap();
        let (gpt, description) = model(8);
        save(dir.path(), &gpt.params, &description).unwrap();
        // A second time: an existing file is replaced, and nothing else is left behind.
        save(dir.path(), &gpt.params, &description).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(describe(dir.path()).unwrap(), description);
        let (other, _) = model(8);
        other.params.values_mut().fill(0.0);
        load(dir.path(), &other.params).unwrap();
        assert_eq!(*other.params.values(), *gpt.params.values());
    }

    /// safetensors writes the keys of a header's table in an order of chance, so it has one.
    #[test]
    fn equal_weights_are_equal_files() {
        let (gpt, description) = model(8);
        gpt.params.allocate(7);
        let saved = || {
            let dir = tempfile::tempdir().unwrap();
            std::fs::read(save(dir.path(), &gpt.params, &description).unwrap()).unwrap()
        };
        let bytes = saved();
        assert_eq!(bytes, saved());
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().map(HashMap::len), Some(1));
    }

    /// A model that cuts its matrices into tiles reads and writes the files of one that does not.
    #[test]
    fn shards_are_cut_from_wholes_and_put_together() {
        let dir = tempfile::tempdir().unwrap();
        let (gpt, description) = model(8);
        save(dir.path(), &gpt.params, &description).unwrap();
        let tiled = Gpt::build(&description.shape, &Tiled(4)).unwrap();
        tiled.params.allocate(9);
        load(dir.path(), &tiled.params).unwrap();
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        save(dir.path(), &tiled.params, &description).unwrap();
        let (again, _) = model(8);
        again.params.values_mut().fill(0.0);
        load(dir.path(), &again.params).unwrap();
        assert!(*again.params.values() == *gpt.params.values());
    }

    #[test]
    fn what_is_not_weights_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (gpt, description) = model(8);
        assert!(describe(dir.path()).unwrap_err().what.contains("cannot read weights"));
        let path = save(dir.path(), &gpt.params, &description).unwrap();
        assert!(
            load(dir.path(), &model(12).0.params)
                .unwrap_err()
                .what
                .contains("wte.weight is F32 [5, 8], not F32 [5, 12]")
        );
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(
            load(dir.path(), &gpt.params)
                .unwrap_err()
                .what
                .contains("does not hold this lab's weights")
        );
        std::fs::write(&path, "not weights").unwrap();
        assert!(describe(dir.path()).is_err());
    }
}
