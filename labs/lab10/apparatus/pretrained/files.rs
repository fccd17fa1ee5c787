//! Weights in safetensors files: model.safetensors, or several files that
//! model.safetensors.index.json lists.

use super::{CHUNK, CONFIG, check, instead, read};
use half::{bf16, f16};
use kit::config_json::some;
use memmap2::Mmap;
use safetensors::tensor::{Dtype, SafeTensors};
use shardlab::error::BadInput;
use shardlab::plan::{Family, ModelShape};
use shardlab::tensor::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

pub const ONE: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";

/// All tensors of a folder. The files are mapped into memory, so that reading a tensor's slice
/// reads only its pages.
pub(super) struct Files {
    pub shape: ModelShape,
    maps: Vec<Mmap>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Clone)]
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

    /// Opens the files of a folder. A head of its own is the model's, although config.json may say
    /// that the token table is; `notes` says so.
    pub fn open(
        dir: &Path,
        shape: &ModelShape,
        notes: &mut Vec<String>,
    ) -> Result<Files, BadInput> {
        let mut files = Files { shape: *shape, maps: Vec::new(), tensors: BTreeMap::new() };
        let names = weight_files(dir)?;
        for name in &names {
            files.add(&dir.join(name))?;
        }
        let untied = untied(shape);
        let (table, _) = shape.table_named();
        let own_head = shape.tied() && files.tensors.contains_key(HEAD);
        if own_head && !files.tensors.contains_key(&table) {
            // A program that saves each number once keeps one of both names.
            files.tensors.insert(table.clone(), files.tensors[HEAD].clone());
        }
        let expected = if own_head { untied.named() } else { shape.named() };
        let found = |name: &str| files.tensors.get(name).map(|tensor| tensor.shape.clone());
        check(dir, CONFIG, &expected, found, files.tensors.keys().map(String::as_str))
            .map_err(|error| with_unlisted(dir, &names, error))?;
        for (name, tensor) in &files.tensors {
            if !matches!(tensor.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                let what = format!("{}: {name} is stored as {:?}", dir.display(), tensor.dtype);
                return Err(BadInput::new(
                    what,
                    "weights that run here are stored as F32, F16 or BF16",
                ));
            }
        }
        if own_head && !files.are_equal(&table, HEAD) {
            notes.push(format!(
                "config.json says that the head is the token table (tie_word_embeddings), and \
                 {HEAD} has different values: it is the head, as in transformers 5"
            ));
            files.shape = untied;
        }
        Ok(files)
    }

    /// Whether two tensors of one shape have the same numbers.
    fn are_equal(&self, a: &str, b: &str) -> bool {
        let [a, b] = [a, b].map(|name| &self.tensors[name]);
        if a.dtype == b.dtype && self.bytes(a) == self.bytes(b) {
            return true;
        }
        let count: usize = a.shape.iter().product();
        let mut numbers = [vec![0.0; CHUNK], vec![0.0; CHUNK]];
        (0..count).step_by(CHUNK).all(|at| {
            let length = CHUNK.min(count - at);
            for (tensor, numbers) in [a, b].into_iter().zip(&mut numbers) {
                self.widened(tensor, at, &mut numbers[..length]);
            }
            numbers[0][..length] == numbers[1][..length]
        })
    }

    fn bytes(&self, tensor: &Tensor) -> &[u8] {
        &self.maps[tensor.map][tensor.bytes.clone()]
    }

    /// The numbers of a tensor from `at` on.
    fn widened(&self, tensor: &Tensor, at: usize, out: &mut [f32]) {
        let bytes = self.bytes(tensor);
        match tensor.dtype {
            Dtype::F16 => widen(&bytes[2 * at..], out, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Dtype::BF16 => {
                widen(&bytes[2 * at..], out, |bytes| bf16::from_le_bytes(bytes).to_f32())
            }
            _ => widen(&bytes[4 * at..], out, f32::from_le_bytes),
        }
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
        spec.runs(elements.clone(), |run, at| {
            let out = &mut out[run.start - elements.start..run.end - elements.start];
            self.widened(tensor, at, out);
        });
        Ok(())
    }
}

fn widen<const N: usize>(bytes: &[u8], out: &mut [f32], number: impl Fn([u8; N]) -> f32) {
    let (numbers, _) = bytes.as_chunks::<N>();
    out.iter_mut().zip(numbers).for_each(|(out, bytes)| *out = number(*bytes));
}

/// The head's own matrix, in a Llama whose head is not the token table.
const HEAD: &str = "lm_head.weight";

/// The same model with a head of its own.
pub(super) fn untied(shape: &ModelShape) -> ModelShape {
    let mut untied = *shape;
    if let Family::Llama(llama) = &mut untied.family {
        llama.tied = false;
    }
    untied
}

/// Whether a file stands for its folder: config.json, the index, or weights that the folder has. If
/// not, it is a GGUF file.
pub(super) fn is_part_of(path: &Path, dir: &Path) -> Result<bool, BadInput> {
    let unreadable = |error| {
        let what = format!("cannot read {}: {error}", path.display());
        BadInput::new(what, "give a model's folder, or a GGUF file")
    };
    if shardlab::files::map(path).map_err(unreadable)?.starts_with(b"GGUF") {
        return Ok(false);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_listed = |dir| weight_files(dir).is_ok_and(|names| names.contains(&name));
    if ["config.json", INDEX].contains(&name.as_str()) || is_listed(dir) {
        return Ok(true);
    }
    Err(instead::no_model(path))
}

/// A refusal of missing tensors, in a folder with weights that its index does not name.
fn with_unlisted(dir: &Path, names: &BTreeSet<String>, error: BadInput) -> BadInput {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut unlisted: Vec<String> = all
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".safetensors") && !names.contains(name))
        .collect();
    unlisted.sort();
    if unlisted.is_empty() {
        return error;
    }
    let unlisted = some(&unlisted.iter().map(String::as_str).collect::<Vec<_>>());
    let what = format!(
        "{}; {unlisted} is not read, because {} does not name it",
        error.what,
        if names.contains(ONE) { "nothing" } else { INDEX }
    );
    BadInput::new(what, error.help)
}

/// The names of the folder's weight files.
pub fn weight_files(dir: &Path) -> Result<BTreeSet<String>, BadInput> {
    let index = dir.join(INDEX);
    if dir.join(ONE).exists() {
        return Ok([ONE.to_string()].into());
    }
    if !index.exists() {
        return Err(instead::no_weights(dir, &format!("has neither {ONE} nor {INDEX}")));
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
