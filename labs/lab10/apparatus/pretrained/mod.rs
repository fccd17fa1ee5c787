//! Pretrained Llamas in local folders: Hugging Face's safetensors, or GGUF.
//!
//! A folder has config.json, the weights and tokenizer.json. Opening it checks the names and shapes
//! of all tensors and reads none. A rank then reads only the elements that it holds: those of its
//! heads, of its stage, of its shard.
//!
//! Reading order: `mod.rs` (the folder, and a model's way to it), `files.rs` (safetensors in
//! memory-mapped files), `gguf.rs`, `text.rs` (the tokenizer).

mod files;
mod gguf;
mod text;

#[cfg(feature = "llm")]
pub use files::{INDEX, ONE, weight_files};
pub use text::{Stream, Text};

use anyhow::Result;
use files::Files;
use gguf::Gguf;
use half::bf16;
use kit::config_json;
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
    weights: Weights,
}

enum Weights {
    Files(Files),
    Gguf(Box<Gguf>),
}

impl Pretrained {
    /// Opens a folder, or a GGUF file with tokenizer.json beside it. Refuses weights that are not
    /// those of its shape.
    pub fn open(path: &Path) -> Result<Pretrained, BadInput> {
        let gguf = if path.is_dir() {
            gguf::find(path)?
        } else {
            Some(path.to_path_buf())
        };
        let dir = if path.is_dir() {
            path
        } else {
            path.parent().unwrap_or(Path::new("."))
        }
        .to_path_buf();
        let config = dir.join("config.json");
        let config = if config.exists() { Some(read(&config)?) } else { None };
        let in_folder = |error: BadInput| BadInput {
            what: format!("{}: {}", dir.display(), error.what),
            ..error
        };
        let shape = config.as_deref().map(config_json::llama).transpose().map_err(in_folder)?;
        let (shape, weights) = match gguf.filter(|_| !Files::are_in(&dir) || !path.is_dir()) {
            Some(path) => {
                let gguf = Gguf::open(&path, shape.as_ref())?;
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
                (shape, Weights::Files(Files::open(&dir, &shape)?))
            }
        };
        let ends = text::ends(&dir, config.as_deref());
        Ok(Pretrained { dir, shape, ends, weights })
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

/// Names for an error: the first three, and how many more there are.
fn some(names: &[&str]) -> String {
    let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 3 {
        format!("{shown} and {} more", names.len() - 3)
    } else {
        shown
    }
}

/// Refuses tensors that are not those of a model. `found` looks up a tensor's shape, `all` are the
/// names that are there.
fn check<'a>(
    place: &Path,
    expected: &[Named],
    found: impl Fn(&str) -> Option<Vec<usize>>,
    all: impl Iterator<Item = &'a str>,
) -> Result<(), BadInput> {
    let bad = |what: String| {
        let what =
            format!("{} does not hold the model of its config.json: {what}", place.display());
        Err(BadInput::new(
            what,
            "do config.json and the weights belong together, and is every file complete?",
        ))
    };
    let missing: Vec<&str> = expected
        .iter()
        .filter(|(name, _)| found(name).is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !missing.is_empty() {
        return bad(format!("it has no {}", some(&missing)));
    }
    for (name, shape) in expected {
        if let Some(found) = found(name).filter(|found| found != shape) {
            return bad(format!("{name} is {found:?}, not {shape:?}"));
        }
    }
    let known: std::collections::HashSet<&str> =
        expected.iter().map(|(name, _)| name.as_str()).collect();
    // Old files have RoPE's frequencies, which follow from config.json, and some repeat the table
    // as the head.
    let ignored = |name: &str| name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight";
    let mut unexpected: Vec<&str> =
        all.filter(|name| !known.contains(name) && !ignored(name)).collect();
    unexpected.sort_unstable();
    if !unexpected.is_empty() {
        return bad(format!("it has unexpected tensors: {}", some(&unexpected)));
    }
    Ok(())
}
