//! Pretrained Llamas in local folders: Hugging Face's safetensors, or GGUF.
//!
//! A folder has config.json, the weights and tokenizer.json. Opening it checks the names and shapes
//! of all tensors and reads none. A rank then reads only the elements that it holds: those of its
//! heads, of its stage, of its shard.
//!
//! Reading order: `mod.rs` (the folder, and a model's way to it), `files.rs` (safetensors in
//! memory-mapped files), `gguf.rs` and `metadata.rs` (what such a file says of itself),
//! `instead.rs` (what is there in place of weights), `text.rs` (the tokenizer).

mod files;
mod gguf;
mod instead;
mod metadata;
#[cfg(test)]
mod tests;
mod text;

#[cfg(feature = "llm")]
pub use files::weight_files;
#[cfg(any(feature = "llm", test))]
pub use files::{INDEX, ONE};
pub use text::{Stream, Text};

use anyhow::Result;
use files::Files;
use gguf::Gguf;
use half::bf16;
use shapes::config_json::{self, some};
use shardlab::checkpoint::agree::agree;
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use shardlab::optim::InitialValues;
use shardlab::plan::{ModelShape, Named, Rope};
use shardlab::tensor::stored::narrow;
use shardlab::tensor::{Numbers, Params, Precision, Spec, Storage};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::DirEntry;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A pretrained model on disk.
pub struct Pretrained {
    pub dir: PathBuf,
    pub shape: ModelShape,
    /// Tokens that end a text.
    pub ends: Vec<u32>,
    /// What the files say that is not obeyed, or not known.
    pub notes: Vec<String>,
    weights: Weights,
}

enum Weights {
    Files(Box<Files>),
    Gguf(Box<Gguf>),
}

impl Pretrained {
    /// Opens a folder, a file of its weights, or a GGUF file with tokenizer.json beside it. Refuses
    /// weights that are not those of its shape.
    pub fn open(path: &Path) -> Result<Pretrained, BadInput> {
        let dir = if path.is_dir() { Some(path) } else { path.parent() };
        let dir = dir.unwrap_or(Path::new(".")).to_path_buf();
        let gguf = if path.is_dir() {
            gguf::find(path)?
        } else {
            files::gguf(path, &dir)?
        };
        let config = dir.join("config.json");
        let config = if config.exists() { Some(read(&config)?) } else { None };
        let in_folder = |error| about(dir.display().to_string(), error);
        let described = config.as_deref().map(config_json::llama).transpose().map_err(in_folder)?;
        let (shape, notes) = described.map(|config| (config.shape, config.notes)).unzip();
        let mut notes = notes.unwrap_or_default();
        let (shape, more, weights) = match gguf {
            Some(path) => {
                let (gguf, more) = Gguf::open(&path, shape.as_ref())?;
                (gguf.shape, more, Weights::Gguf(Box::new(gguf)))
            }
            None => {
                let Some(shape) = shape else {
                    let what =
                        format!("{} is no model's folder: it has no config.json", path.display());
                    let help =
                        "give a folder with config.json, model.safetensors and tokenizer.json";
                    return Err(BadInput::new(what, help));
                };
                let (files, more) = Files::open(&dir, &shape)?;
                (files.shape, more, Weights::Files(Box::new(files)))
            }
        };
        notes.extend(more);
        let mut ends = text::ends(&dir, config.as_deref());
        if let Weights::Gguf(gguf) = &weights {
            notes.extend(gguf.metadata().compare_ends(&mut ends)?);
        }
        Ok(Pretrained { dir, shape, ends, notes, weights })
    }

    /// Reads some elements of a parameter into `out`. Padding becomes zeros.
    pub fn read(&self, spec: &Spec, range: Range<usize>, out: &mut [f32]) -> Result<(), BadInput> {
        out.fill(0.0);
        match &self.weights {
            Weights::Files(files) => files.read(spec, range, out),
            Weights::Gguf(gguf) => gguf.read(spec, range, out),
        }
    }

    /// Reads this rank's parameters, stored in `precision`, without gradients: for a model that
    /// generates.
    pub fn load(&self, params: &Params, precision: Precision) -> Result<(), BadInput> {
        let mut values = match precision {
            Precision::F32 => Numbers::F32(vec![0.0; params.numel()]),
            Precision::Bf16 => Numbers::Bf16(vec![bf16::ZERO; params.numel()]),
        };
        let mut chunk = Vec::new();
        for spec in params.specs() {
            for start in (0..spec.numel()).step_by(CHUNK) {
                let elements = start..spec.numel().min(start + CHUNK);
                let at = spec.range().start + start;
                let held = at..at + elements.len();
                chunk.resize(elements.len(), 0.0);
                self.read(spec, elements, &mut chunk)?;
                match &mut values {
                    Numbers::F32(values) => values[held].copy_from_slice(&chunk),
                    Numbers::Bf16(values) => narrow(&chunk, &mut values[held]),
                }
            }
        }
        params.set_values(Storage::Local(values));
        Ok(())
    }

    /// Runs `job`, which begins a training or a generation, with a function that reads values: each
    /// rank reads its own shard, in any stage of ZeRO. All ranks call it. If one cannot read its
    /// own, no rank continues.
    pub fn begin<R>(&self, comm: &Comm, job: impl FnOnce(InitialValues) -> Result<R>) -> Result<R> {
        let failed = RefCell::new(None);
        let begun = job(&|spec, elements, out| {
            if let Err(error) = self.read(spec, elements, out) {
                failed.borrow_mut().get_or_insert(error);
            }
        })?;
        agree(comm, failed.into_inner().map_or(Ok(()), Err))??;
        Ok(begun)
    }

    /// The tokenizer of tokenizer.json.
    pub fn text(&self) -> Result<Text, BadInput> {
        let text = Text::open(&self.dir, self.shape.vocabulary)?;
        if let Weights::Gguf(gguf) = &self.weights {
            gguf.metadata().compare_tokens(&text)?;
        }
        Ok(text)
    }
}

/// Numbers that are converted at a time.
const CHUNK: usize = 1 << 16;

fn read(path: &Path) -> Result<String, BadInput> {
    shardlab::files::text(path, shardlab::files::LIST)
        .map_err(|error| unreadable(path, &error, "is the folder complete?"))
}

/// The names of what a folder has, in order.
fn listed(dir: &Path) -> Result<Vec<String>, BadInput> {
    let all = std::fs::read_dir(dir);
    let all = all.map_err(|error| unreadable(dir, &error, "may you read it?"))?.flatten();
    let name = |entry: DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = all.map(name).collect();
    names.sort();
    Ok(names)
}

fn unreadable(path: &Path, why: &dyn Display, help: &str) -> BadInput {
    BadInput::new(format!("cannot read {}: {why}", path.display()), help)
}

/// An error, after the file or folder that it is about.
fn about(place: String, error: BadInput) -> BadInput {
    BadInput::new(format!("{place}: {}", error.what), error.help)
}

/// The refusal to read a parameter that the weights do not have.
fn of_other_shape(spec: &Spec) -> BadInput {
    let what = format!("the weights have no {} {:?}", spec.whole.name, spec.whole.shape);
    BadInput::new(what, "make the model from the shape that Pretrained::open returned")
}

const FETCH_AGAIN: &str =
    "is the file complete? Compare its size with the source's, or fetch it again";

/// What describes a model, and what to do where the weights are not its: a file beside them, or
/// their own.
const CONFIG: [&str; 2] = [
    "its config.json",
    "do config.json and the weights belong together, and is every file complete?",
];
const METADATA: [&str; 2] = ["its metadata", FETCH_AGAIN];

/// A factor for each of RoPE's frequencies, by which llama.cpp divides it.
const FREQUENCIES: &str = "rope_freqs.weight";
/// How the names of old files' frequencies of RoPE end.
const OLD_FREQUENCIES: &str = ".rotary_emb.inv_freq";

/// The refusal of a config.json that does not scale RoPE as the weights do. `what` ends with its
/// name.
fn scaled_otherwise(what: &str, rope: &Rope) -> BadInput {
    let how = if rope.scaling.is_some() {
        "otherwise"
    } else {
        "not at all"
    };
    let help = "give the config.json of the model that the file was made of";
    BadInput::new(format!("{what} {how}"), help)
}

/// Whether these factors divide RoPE's frequencies as its scaling does.
fn scales_by(rope: &Rope, head: usize, factors: &[f32]) -> bool {
    let plain = Rope { scaling: None, ..*rope }.frequencies(head);
    let scaled = rope.frequencies(head);
    let same = |((plain, scaled), factor): ((&f64, &f64), &f32)| {
        (plain / scaled - f64::from(*factor)).abs() < 1e-3 * plain / scaled
    };
    factors.len() == plain.len() && plain.iter().zip(&scaled).zip(factors).all(same)
}

/// Refuses tensors, by their names, that are not those of a model.
fn check(
    place: &Path,
    [described, usual]: [&str; 2],
    expected: &[Named],
    mut there: BTreeMap<&str, &[usize]>,
) -> Result<(), BadInput> {
    let bad = |what: String, help: &str| {
        let what = format!("{} does not hold the model of {described}: {what}", place.display());
        Err(BadInput::new(what, help))
    };
    let mut missing = Vec::new();
    let mut differs = None;
    for (name, shape) in expected {
        match there.remove(name.as_str()) {
            None => missing.push(name.as_str()),
            Some(found) if found == shape => {}
            Some(found) => differs = differs.or(Some((name, found, shape))),
        }
    }
    // RoPE's frequencies, which old files have, follow from what describes the model.
    // Both kinds of files compare them.
    there.retain(|name, _| !name.ends_with(OLD_FREQUENCIES) && *name != FREQUENCIES);
    let unexpected: Vec<&str> = there.into_keys().collect();
    if let Some(first) = missing.first() {
        let lacks = format!("it has no {}", some(&missing));
        return match instead::in_place_of(first, &unexpected) {
            Some((there, help)) => bad(format!("{lacks}, but {there}"), help),
            None => bad(lacks, usual),
        };
    }
    if let Some((name, found, shape)) = differs {
        return bad(format!("{name} is {found:?}, not {shape:?}"), usual);
    }
    if !unexpected.is_empty() {
        return bad(format!("it has unexpected tensors: {}", some(&unexpected)), usual);
    }
    Ok(())
}
