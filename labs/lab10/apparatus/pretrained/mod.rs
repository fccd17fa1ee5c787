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
use kit::config_json::{self, Described, some};
use shardlab::checkpoint::agree::agree;
use shardlab::comm::Comm;
use shardlab::error::BadInput;
use shardlab::parallel::zero::{Wrap, Zero, ZeroConfig, ZeroInference};
use shardlab::plan::{ModelShape, Named};
use shardlab::tensor::stored::narrow;
use shardlab::tensor::{Numbers, Params, Precision, Spec, Storage};
use shardlab::train::{Setup, Training};
use std::cell::RefCell;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    Files(Files),
    Gguf(Box<Gguf>),
}

impl Pretrained {
    /// Opens a folder, a file of its weights, or a GGUF file with tokenizer.json beside it. Refuses
    /// weights that are not those of its shape.
    pub fn open(path: &Path) -> Result<Pretrained, BadInput> {
        let dir = if path.is_dir() { Some(path) } else { path.parent() };
        let dir = dir.unwrap_or(Path::new(".")).to_path_buf();
        let gguf = if !path.is_dir() {
            (!files::is_part_of(path, &dir)?).then(|| path.to_path_buf())
        } else if Files::are_in(path) {
            None
        } else {
            gguf::find(path)?
        };
        let config = dir.join("config.json");
        let config = if config.exists() { Some(read(&config)?) } else { None };
        let in_folder = |error: BadInput| BadInput {
            what: format!("{}: {}", dir.display(), error.what),
            ..error
        };
        let described = config.as_deref().map(config_json::llama).transpose().map_err(in_folder)?;
        let (shape, mut notes) = match described {
            Some(Described { shape, notes, .. }) => (Some(shape), notes),
            None => (None, Vec::new()),
        };
        let (shape, weights) = match gguf {
            Some(path) => {
                let gguf = Gguf::open(&path, shape.as_ref(), &mut notes)?;
                (gguf.shape, Weights::Gguf(Box::new(gguf)))
            }
            None => {
                let shape = shape.ok_or_else(|| {
                    let what =
                        format!("{} is no model's folder: it has no config.json", path.display());
                    BadInput::new(
                        what,
                        "give a folder with config.json, model.safetensors and tokenizer.json",
                    )
                })?;
                let files = Files::open(&dir, &shape, &mut notes)?;
                (files.shape, Weights::Files(files))
            }
        };
        let ends = text::ends(&dir, config.as_deref());
        Ok(Pretrained { dir, shape, ends, notes, weights })
    }

    /// Reads some elements of a parameter into `out`. Padding becomes zeros.
    pub fn read(
        &self,
        spec: &Spec,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), BadInput> {
        out.fill(0.0);
        match &self.weights {
            Weights::Files(files) => files.read(spec, elements, out),
            Weights::Gguf(gguf) => gguf.read(spec, elements, out),
        }
    }

    /// Reads this rank's parameters, stored in `precision`, without gradients: for a model that
    /// generates.
    pub fn load(&self, params: &Params, precision: Precision) -> Result<(), BadInput> {
        let mut values = match precision {
            Precision::F32 => Numbers::F32(vec![0.0; params.numel()]),
            Precision::Bf16 => Numbers::Bf16(vec![bf16::ZERO; params.numel()]),
        };
        let mut wide = Vec::new();
        for spec in params.specs() {
            match &mut values {
                Numbers::F32(values) => {
                    self.read(spec, 0..spec.numel(), &mut values[spec.range()])?
                }
                Numbers::Bf16(values) => {
                    let values = &mut values[spec.range()];
                    for start in (0..values.len()).step_by(CHUNK) {
                        let chunk = start..values.len().min(start + CHUNK);
                        wide.resize(chunk.len(), 0.0);
                        self.read(spec, chunk.clone(), &mut wide)?;
                        narrow(&wide, &mut values[chunk]);
                    }
                }
            }
        }
        params.set_values(Storage::Local(values));
        Ok(())
    }

    /// Begins a training with these weights, in any stage of ZeRO. Each rank reads its own shard.
    /// All ranks call it.
    pub fn train(&self, params: &Arc<Params>, comm: &Comm, config: ZeroConfig) -> Result<Zero> {
        self.begin(comm, |begin| Zero::begin_with(params, comm, config, begin))
    }

    /// The same of a whole training on `comm`'s ranks.
    pub fn train_whole(&self, setup: Setup, comm: &Comm) -> Result<Training> {
        self.begin(comm, |begin| setup.values(begin).begin(comm))
    }

    /// Begins to generate with weights that `comm`'s ranks shard. Each rank reads its own shard.
    /// All ranks call it.
    pub fn shard(
        &self,
        params: &Arc<Params>,
        comm: &Comm,
        wrap: Wrap,
        precision: Precision,
    ) -> Result<ZeroInference> {
        self.begin(comm, |begin| ZeroInference::new(params, comm, wrap, precision, begin))
    }

    /// Runs `make` with a function that reads values. If a rank cannot read its own, no rank
    /// continues.
    fn begin<R>(
        &self,
        comm: &Comm,
        make: impl FnOnce(&dyn Fn(&Spec, Range<usize>, &mut [f32])) -> Result<R>,
    ) -> Result<R> {
        let failed = RefCell::new(None);
        let made = make(&|spec, elements, out| {
            if let Err(error) = self.read(spec, elements, out) {
                failed.borrow_mut().get_or_insert(error);
            }
        })?;
        agree(comm, failed.into_inner().map_or(Ok(()), Err))??;
        Ok(made)
    }

    /// The tokenizer of tokenizer.json.
    pub fn text(&self) -> Result<Text, BadInput> {
        Text::open(&self.dir, self.shape.vocabulary)
    }
}

/// Numbers that are converted at a time.
const CHUNK: usize = 1 << 16;

fn read(path: &Path) -> Result<String, BadInput> {
    shardlab::files::text(path, shardlab::files::LIST).map_err(|error| {
        BadInput::new(format!("cannot read {}: {error}", path.display()), "is the folder complete?")
    })
}

/// What describes a model: a file beside its weights, or the weights' own file.
const CONFIG: &str = "its config.json";
const METADATA: &str = "its metadata";

/// Refuses tensors that are not those of a model, which `described` describes. `found` looks up a
/// tensor's shape, `all` are the names that are there.
fn check<'a>(
    place: &Path,
    described: &str,
    expected: &[Named],
    found: impl Fn(&str) -> Option<Vec<usize>>,
    all: impl Iterator<Item = &'a str>,
) -> Result<(), BadInput> {
    let bad = |what: String, help: &str| {
        let what = format!("{} does not hold the model of {described}: {what}", place.display());
        Err(BadInput::new(what, help))
    };
    let usual = if described == METADATA {
        "is the file complete? Compare its size with the source's, or fetch it again"
    } else {
        "do config.json and the weights belong together, and is every file complete?"
    };
    let missing: Vec<&str> = expected
        .iter()
        .filter(|(name, _)| found(name).is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    let known: std::collections::HashSet<&str> =
        expected.iter().map(|(name, _)| name.as_str()).collect();
    // RoPE's frequencies, which old files have, follow from what describes the model.
    let ignored =
        |name: &str| name.ends_with(".rotary_emb.inv_freq") || name == "rope_freqs.weight";
    let mut unexpected: Vec<&str> =
        all.filter(|name| !known.contains(name) && !ignored(name)).collect();
    unexpected.sort_unstable();
    if !missing.is_empty() {
        let lacks = format!("it has no {}", some(&missing));
        return match instead::in_place_of(&missing, &unexpected) {
            Some((there, help)) => bad(format!("{lacks}, but {there}"), help),
            None => bad(lacks, usual),
        };
    }
    for (name, shape) in expected {
        if let Some(found) = found(name).filter(|found| found != shape) {
            return bad(format!("{name} is {found:?}, not {shape:?}"), usual);
        }
    }
    if !unexpected.is_empty() {
        return bad(format!("it has unexpected tensors: {}", some(&unexpected)), usual);
    }
    Ok(())
}
