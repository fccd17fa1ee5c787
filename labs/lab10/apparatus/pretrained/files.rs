//! Weights in safetensors files: model.safetensors, or several files that
//! model.safetensors.index.json lists.

use super::{
    CHUNK, CONFIG, FETCH_AGAIN, FREQUENCIES, OLD_FREQUENCIES, check, instead, listed,
    of_other_shape, read, scaled_otherwise, scales_by, unreadable,
};
use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorInfo};
use shapes::config_json::some;
use shardlab::error::BadInput;
use shardlab::plan::{Family, ModelShape, Rope};
use shardlab::tensor::Spec;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

pub const ONE: &str = "model.safetensors";
pub const INDEX: &str = "model.safetensors.index.json";

/// All tensors of a folder. The files are mapped into memory, so that reading a tensor's slice
/// reads only its pages.
pub(super) struct Files {
    pub shape: ModelShape,
    maps: Vec<shardlab::files::Mapped>,
    tensors: BTreeMap<String, Tensor>,
}

#[derive(Clone)]
struct Tensor {
    map: usize,
    /// Where the file's numbers begin.
    start: usize,
    info: TensorInfo,
}

impl Files {
    /// Opens the files of a folder. A head of its own is the model's, although config.json may say
    /// that the token table is; a note says so.
    pub fn open(dir: &Path, shape: &ModelShape) -> Result<(Files, Vec<String>), BadInput> {
        let mut files = Files { shape: *shape, maps: Vec::new(), tensors: BTreeMap::new() };
        let names = weight_files(dir)?;
        for name in &names {
            files.add(&dir.join(name))?;
        }
        if !names.contains(ONE) {
            files.compare_with(&dir.join(INDEX), &names)?;
        }
        let (table, _) = shape.table_named();
        let head = files.tensors.get(HEAD).cloned().filter(|_| shape.tied());
        if let Some(head) = head {
            // A program that saves each number once keeps one of both names.
            files.tensors.entry(table.clone()).or_insert(head);
            files.shape = untied(shape);
        }
        let there = files.tensors.iter();
        let there = there.map(|(name, tensor)| (name.as_str(), &tensor.info.shape[..]));
        check(dir, CONFIG, &files.shape.named(), there.collect())
            .map_err(|error| with_unlisted(dir, &names, error))?;
        for (name, tensor) in &files.tensors {
            if !matches!(tensor.info.dtype, Dtype::F32 | Dtype::F16 | Dtype::BF16) {
                let what =
                    format!("{}: {name} is stored as {:?}", dir.display(), tensor.info.dtype);
                let help = "weights that run here are stored as F32, F16 or BF16";
                return Err(BadInput::new(what, help));
            }
        }
        let mut notes: Vec<String> = beside(dir, &names)?.into_iter().collect();
        notes.extend(files.compare_frequencies(dir)?);
        if files.shape.tied() != shape.tied() && !files.are_equal(&table, HEAD) {
            let head = "has different values: it is the head, as in transformers 5";
            notes.push(own_head(&format!("{HEAD} {head}")));
        } else {
            files.shape = *shape;
        }
        Ok((files, notes))
    }

    /// Refuses an index that names another file for a tensor than the one of `names` that has it.
    fn compare_with(&self, index: &Path, names: &BTreeSet<String>) -> Result<(), BadInput> {
        for (tensor, file) in indexed(index)? {
            let found = self.tensors.get(&tensor).and_then(|tensor| names.iter().nth(tensor.map));
            if found != Some(&file) {
                let place = found.map_or("no file".to_string(), String::clone);
                let what = format!("{}: {tensor} is in {place}, not in {file}", index.display());
                return Err(BadInput::new(what, "fetch the index and the files again"));
            }
        }
        Ok(())
    }

    /// Compares what the weights have of RoPE's frequencies with config.json, which is obeyed: old
    /// files have the frequencies themselves, and GGUF's factors may have come along.
    fn compare_frequencies(&self, dir: &Path) -> Result<Option<String>, BadInput> {
        let Some(llama) = self.shape.llama() else {
            return Ok(None);
        };
        let head = self.shape.head();
        let numbers = |tensor: &Tensor| {
            let mut numbers = vec![0.0; tensor.info.shape.iter().product()];
            self.widened(tensor, 0, &mut numbers);
            numbers
        };
        if let Some(factors) = self.tensors.get(FREQUENCIES)
            && !scales_by(&llama.rope, head, &numbers(factors))
        {
            let what = format!("{}: {FREQUENCIES} scales RoPE", dir.display());
            return Err(scaled_otherwise(&format!("{what}, and config.json"), &llama.rope));
        }
        let plain = Rope { scaling: None, ..llama.rope };
        let known = [plain, llama.rope].map(|rope| rope.frequencies(head));
        let mut olds = self.tensors.iter().filter(|(name, _)| name.ends_with(OLD_FREQUENCIES));
        let other = olds.find(|(_, tensor)| {
            let numbers = numbers(tensor);
            // Those of a file may have 8 bits, and f16 keeps small ones by steps of 6e-8.
            let near = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs() <= b / 128.0 + 6e-8;
            !known.iter().any(|known| {
                known.len() == numbers.len() && numbers.iter().zip(known.iter()).all(near)
            })
        });
        Ok(other.map(|(name, _)| {
            format!(
                "{name} has other frequencies than config.json says: config.json's are taken, as in transformers"
            )
        }))
    }

    /// Whether two tensors of one shape have the same numbers.
    fn are_equal(&self, a: &str, b: &str) -> bool {
        let [a, b] = [a, b].map(|name| &self.tensors[name]);
        if a.info.dtype == b.info.dtype && self.bytes(a) == self.bytes(b) {
            return true;
        }
        let count: usize = a.info.shape.iter().product();
        (0..count).step_by(CHUNK).all(|at| {
            let [a, b] = [a, b].map(|tensor| {
                let mut numbers = vec![0.0; CHUNK.min(count - at)];
                self.widened(tensor, at, &mut numbers);
                numbers
            });
            a == b
        })
    }

    fn bytes(&self, tensor: &Tensor) -> &[u8] {
        let (from, to) = tensor.info.data_offsets;
        &self.maps[tensor.map][tensor.start + from..tensor.start + to]
    }

    /// The numbers of a tensor from `at` on.
    fn widened(&self, tensor: &Tensor, at: usize, out: &mut [f32]) {
        let bytes = self.bytes(tensor);
        match tensor.info.dtype {
            Dtype::F16 => widen(&bytes[2 * at..], out, |two| f16::from_le_bytes(two).to_f32()),
            Dtype::BF16 => widen(&bytes[2 * at..], out, |two| bf16::from_le_bytes(two).to_f32()),
            _ => widen(&bytes[4 * at..], out, f32::from_le_bytes),
        }
    }

    fn add(&mut self, path: &Path) -> Result<(), BadInput> {
        let bad = |what: &dyn std::fmt::Display| {
            let what = format!("cannot read the weights in {}: {what}", path.display());
            BadInput::new(what, FETCH_AGAIN)
        };
        if is_zip(path) {
            let what = format!("{} is a zip archive, as torch.save writes them", path.display());
            let help = "save the tensors alone, with save_file of safetensors.torch";
            return Err(BadInput::new(what, help));
        }
        let map = shardlab::files::map(path).map_err(|error| bad(&error))?;
        let (header, metadata) = SafeTensors::read_metadata(&map).map_err(|error| bad(&error))?;
        for (name, info) in metadata.tensors() {
            let tensor = Tensor { map: self.maps.len(), start: 8 + header, info: info.clone() };
            if self.tensors.insert(name.clone(), tensor).is_some() {
                return Err(bad(&format!("a different file has {name}, too")));
            }
        }
        self.maps.push(map);
        Ok(())
    }

    /// Reads some elements of a parameter.
    pub fn read(&self, spec: &Spec, range: Range<usize>, out: &mut [f32]) -> Result<(), BadInput> {
        let tensor = self.tensors.get(&spec.whole.name);
        let tensor = tensor.filter(|tensor| tensor.info.shape == spec.whole.shape);
        let tensor = tensor.ok_or_else(|| of_other_shape(spec))?;
        spec.runs(range.clone(), |run, at| {
            let out = &mut out[run.start - range.start..run.end - range.start];
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

/// A note about a head where config.json has none.
pub(super) fn own_head(has: &str) -> String {
    format!("config.json says that the head is the token table (tie_word_embeddings), and {has}")
}

/// The file itself if it is GGUF, or `None` if it stands for its folder: config.json, the index, or
/// weights that the folder has.
pub(super) fn gguf(path: &Path, dir: &Path) -> Result<Option<PathBuf>, BadInput> {
    let help = "give a model's folder, or a GGUF file";
    let file = shardlab::files::map(path).map_err(|error| unreadable(path, &error, help))?;
    if file.starts_with(b"GGUF") {
        return Ok(Some(path.to_path_buf()));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_listed = || weight_files(dir).is_ok_and(|names| names.contains(&name));
    if name == "config.json" || name == INDEX || is_listed() {
        return Ok(None);
    }
    Err(instead::no_model(path, &name))
}

/// A refusal of tensors, in a folder with weights that are not read.
fn with_unlisted(dir: &Path, names: &BTreeSet<String>, error: BadInput) -> BadInput {
    let mut unlisted = listed(dir).unwrap_or_default();
    unlisted.retain(|name| name.ends_with(".safetensors") && !names.contains(name));
    if unlisted.is_empty() {
        return error;
    }
    let why = if names.contains(ONE) {
        "model.safetensors is there"
    } else {
        "model.safetensors.index.json does not name it"
    };
    BadInput::new(
        format!("{}; {} is not read, because {why}", error.what, some(&unlisted)),
        error.help,
    )
}

/// A note about other weights in a folder, which may have other values than those that are read:
/// model.safetensors goes before its index, and both before a GGUF file, as in transformers.
fn beside(dir: &Path, read: &BTreeSet<String>) -> Result<Option<String>, BadInput> {
    let is_other = |name: &String| {
        let ends = [".safetensors", ".gguf"].iter().any(|end| name.ends_with(end));
        let is_weights = ends || name == INDEX || name.starts_with("pytorch_model");
        let is_index = name == INDEX && !read.contains(ONE);
        is_weights && !read.contains(name) && !is_index
    };
    let mut others = listed(dir)?;
    others.retain(is_other);
    if others.is_empty() {
        return Ok(None);
    }
    let read: Vec<String> = read.iter().cloned().collect();
    Ok(Some(format!(
        "the weights are those in {}; not read: {}",
        some(&read),
        some(&others)
    )))
}

/// The names of the folder's weight files.
pub fn weight_files(dir: &Path) -> Result<BTreeSet<String>, BadInput> {
    let index = dir.join(INDEX);
    if dir.join(ONE).exists() {
        return Ok([ONE.to_string()].into());
    }
    if !index.exists() {
        return Err(instead::no_weights(dir, &listed(dir)?));
    }
    Ok(indexed(&index)?.into_values().collect())
}

/// The file of each tensor, as the index says.
fn indexed(index: &Path) -> Result<BTreeMap<String, String>, BadInput> {
    let bad = |what: String| {
        BadInput::new(format!("{}: {what}", index.display()), "is the file complete?")
    };
    let json: serde_json::Value =
        serde_json::from_str(&read(index)?).map_err(|error| bad(error.to_string()))?;
    let map = json.get("weight_map").and_then(|map| map.as_object());
    let map = map.ok_or_else(|| bad("it has no weight_map".into()))?;
    // The index is input like any other: it must not lead out of the folder.
    let is_plain = |name: &&str| Path::new(name).file_name().is_some_and(|plain| plain == *name);
    let mut files = BTreeMap::new();
    for (tensor, file) in map {
        let name = file.as_str().filter(is_plain);
        let name = name.ok_or_else(|| bad(format!("{file} is not a file of this folder")))?;
        files.insert(tensor.clone(), name.to_string());
    }
    Ok(files)
}

/// Whether a file begins as a zip archive. Only a file is opened: a pipe would wait for a writer.
fn is_zip(path: &Path) -> bool {
    let mut begins = [0; 4];
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut begins)).is_ok()
        && &begins == b"PK\x03\x04"
}
