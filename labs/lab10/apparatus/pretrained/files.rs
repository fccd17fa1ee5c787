//! Weights in safetensors files: model.safetensors, or several files that
//! model.safetensors.index.json lists.

use super::{check, read};
use half::{bf16, f16};
use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors};
use shardlab::error::BadInput;
use shardlab::plan::ModelShape;
use shardlab::tensor::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

pub const ONE: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";

/// All tensors of a folder. The files are mapped into memory, so that reading a tensor's slice
/// reads only its pages.
pub(super) struct Files {
    maps: Vec<Mmap>,
    tensors: BTreeMap<String, Tensor>,
}

struct Tensor {
    map: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl Files {
    /// Whether the folder has weights as safetensors.
    pub fn are_in(dir: &Path) -> bool {
        dir.join(ONE).exists() || dir.join(INDEX).exists()
    }

    pub fn open(dir: &Path, shape: &ModelShape) -> Result<Files, BadInput> {
        let mut files = Files { maps: Vec::new(), tensors: BTreeMap::new() };
        for name in weight_files(dir)? {
            files.add(&dir.join(name))?;
        }
        let found = |name: &str| files.tensors.get(name).map(|tensor| tensor.shape.clone());
        check(dir, &shape.named(), found, files.tensors.keys().map(String::as_str))?;
        for (name, tensor) in &files.tensors {
            if !matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                let what = format!("{}: {name} is stored as {:?}", dir.display(), tensor.dtype);
                return Err(BadInput::new(
                    what,
                    "weights that run here are stored as F32, F16 or BF16",
                ));
            }
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path) -> Result<(), BadInput> {
        let bad = |what: &dyn std::fmt::Display| {
            let what = format!("cannot read the weights in {}: {what}", path.display());
            BadInput::new(
                what,
                "is the file complete? Compare its size with the source's, or fetch it again",
            )
        };
        let map = shardlab::files::map(path).map_err(|error| bad(&error))?;
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|error| bad(&error))?;
        let start = 8 + header;
        for (name, info) in metadata.tensors() {
            let bytes = start + info.data_offsets.0..start + info.data_offsets.1;
            let tensor = Tensor {
                map: self.maps.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes,
            };
            if self.tensors.insert(name.clone(), tensor).is_some() {
                return Err(bad(&format!("a different file has {name}, too")));
            }
        }
        self.maps.push(map);
        Ok(())
    }

    /// Reads some elements of a parameter.
    pub fn read(
        &self,
        spec: &Spec,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), BadInput> {
        let Some(tensor) = self
            .tensors
            .get(&spec.whole.name)
            .filter(|tensor| tensor.shape == spec.whole.shape)
        else {
            let what = format!("the weights have no {} {:?}", spec.whole.name, spec.whole.shape);
            return Err(BadInput::new(
                what,
                "make the model from the shape that Pretrained::open returned",
            ));
        };
        let bytes = &self.maps[tensor.map][tensor.bytes.clone()];
        spec.runs(elements.clone(), |run, at| {
            let out = &mut out[run.start - elements.start..run.end - elements.start];
            match tensor.dtype {
                Dtype::F16 => {
                    widen(&bytes[2 * at..], out, |bytes| f16::from_le_bytes(bytes).to_f32())
                }
                Dtype::BF16 => {
                    widen(&bytes[2 * at..], out, |bytes| bf16::from_le_bytes(bytes).to_f32())
                }
                _ => widen(&bytes[4 * at..], out, f32::from_le_bytes),
            }
        });
        Ok(())
    }
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = bytes.as_chunks::<N>();
    out.iter_mut().zip(numbers).for_each(|(out, bytes)| *out = number(*bytes));
}

/// The names of the folder's weight files.
pub fn weight_files(dir: &Path) -> Result<BTreeSet<String>, BadInput> {
    let index = dir.join(INDEX);
    if dir.join(ONE).exists() {
        return Ok([ONE.to_string()].into());
    }
    if !index.exists() {
        let what = format!("{} has neither {ONE} nor {INDEX}", dir.display());
        return Err(BadInput::new(
            what,
            "fetch the weights as safetensors: PyTorch's .bin files are not read here",
        ));
    }
    let bad = |what: String| {
        BadInput::new(format!("{}: {what}", index.display()), "is the file complete?")
    };
    let json: serde_json::Value =
        serde_json::from_str(&read(&index)?).map_err(|error| bad(error.to_string()))?;
    let map = json.get("weight_map").and_then(|map| map.as_object());
    let map = map.ok_or_else(|| bad("it has no weight_map".into()))?;
    let names: Option<BTreeSet<String>> =
        map.values().map(|name| name.as_str().map(str::to_string)).collect();
    let names = names.ok_or_else(|| bad("weight_map has a file that is no name".into()))?;
    // The index is input like any other: it must not lead out of the folder.
    match names
        .iter()
        .find(|name| Path::new(name).file_name().is_none_or(|plain| plain != name.as_str()))
    {
        Some(name) => Err(bad(format!("{name:?} is not a file of this folder"))),
        None => Ok(names),
    }
}
