//! Weights in a GGUF file, llama.cpp's format. They may be quantized, and are dequantized here.
//!
//! GGUF has its own names and its own order of rows. RoPE there turns neighbouring numbers, so the
//! file has the two halves of each query and key head interleaved.

use super::files::untied;
use super::metadata::{self, Metadata};
use super::{CONFIG, METADATA, check};
use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Result as CandleResult};
use kit::config_json::{self, some};
use shardlab::error::BadInput;
use shardlab::files;
use shardlab::plan::{ModelShape, Named};
use shardlab::tensor::Spec;
use std::io::Cursor;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// An open file.
pub(super) struct Gguf {
    path: PathBuf,
    pub shape: ModelShape,
    content: Content,
    /// The tensor that was read last: several slices of it may follow each other.
    last: Mutex<(String, Vec<f32>)>,
}

/// The most bytes of a header. A vocabulary of 256,000 tokens takes about 14 million. candle keeps
/// each value in 32 bytes, however few the file spends on it, so this bounds its memory.
const HEADER: usize = 32 << 20;

/// Whether a header has an alignment that GGUF does not know. candle divides by it, even by 0.
fn has_odd_alignment(header: &[u8]) -> bool {
    const KEY: &[u8] = b"general.alignment";
    const U32: [u8; 4] = [4, 0, 0, 0];
    header.windows(KEY.len() + 8).any(|entry| {
        let value = &entry[KEY.len()..];
        entry.starts_with(KEY) && (value[..4] != U32 || value[4..] == [0; 4])
    })
}

/// The folder's GGUF file, if it has one. One for images is no model of texts.
pub(super) fn find(dir: &Path) -> Result<Option<PathBuf>, BadInput> {
    let unreadable = |error| {
        BadInput::new(format!("cannot read {}: {error}", dir.display()), "may you read it?")
    };
    let files = std::fs::read_dir(dir).map_err(unreadable)?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if files.len() > 1 {
        files.retain(|path| !name(path).contains("mmproj"));
    }
    if files.len() < 2 {
        return Ok(files.pop());
    }
    let names: Vec<String> = files.iter().map(name).collect();
    let listed = some(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let place = dir.display();
    if names.iter().all(|name| name.contains("-of-0")) {
        let what = format!("{place} has a model in {} GGUF files: {listed}", names.len());
        return Err(BadInput::new(what, metadata::JOIN));
    }
    let what = format!("{place} has several GGUF files: {listed}");
    Err(BadInput::new(what, format!("name one of them: --model {}", files[0].display())))
}

/// Bytes of the file up to the end of its tensors.
fn end(content: &Content) -> u128 {
    let ends = content.tensor_infos.values().map(|info| {
        let numbers = info.shape.dims().iter().fold(1u128, |all, &n| all.saturating_mul(n as u128));
        let blocks = numbers.div_ceil(info.ggml_dtype.block_size() as u128);
        let bytes = blocks.saturating_mul(info.ggml_dtype.type_size() as u128);
        bytes.saturating_add(u128::from(info.offset))
    });
    u128::from(content.tensor_data_offset).saturating_add(ends.max().unwrap_or(0))
}

/// candle's own words, without the calls that led to them, which `RUST_BACKTRACE` asks for.
pub(super) fn in_one_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

impl Gguf {
    /// Opens a file. `config` is the shape of a config.json beside it, which alone knows RoPE's
    /// scaling. A head of its own is the model's, whatever config.json says; `notes` says so.
    pub fn open(
        path: &Path,
        config: Option<&ModelShape>,
        notes: &mut Vec<String>,
    ) -> Result<Gguf, BadInput> {
        let bad = |what: String| {
            let help = "is the file complete, and a Llama's?";
            metadata::refused(path, (what, help.to_string()))
        };
        let file = files::map(path).map_err(|error| bad(error.to_string()))?;
        let header = &file[..file.len().min(HEADER)];
        if has_odd_alignment(header) {
            return Err(bad("its general.alignment is no u32 above 0".into()));
        }
        let content = Content::read(&mut Cursor::new(header));
        let content = content.map_err(|error| bad(in_one_line(&error)))?;
        let metadata = Metadata(&content);
        let refused = |wrong| metadata::refused(path, wrong);
        metadata.ensure_whole().map_err(refused)?;
        let has = |name: &str| content.tensor_infos.contains_key(name);
        let (shape, described) = match config {
            Some(config) => {
                let has_own_head = config.tied() && has("output.weight");
                if has_own_head {
                    notes.push(
                        "config.json says that the head is the token table (tie_word_embeddings), \
                         and the GGUF file has an output.weight: it is the head"
                            .into(),
                    );
                }
                (if has_own_head { untied(config) } else { *config }, CONFIG)
            }
            None if has("rope_freqs.weight") => {
                let what = "it scales RoPE's frequencies, and config.json, which says how, is not \
                            beside it";
                return Err(bad(what.into()));
            }
            None => (metadata.shape().map_err(refused)?, METADATA),
        };
        config_json::check(&shape)?;
        metadata.ensure_computes(&shape).map_err(refused)?;
        notes.extend(metadata.unread());
        let found = |name: &str| Some(content.tensor_infos.get(name)?.shape.dims().to_vec());
        let own = |(name, dims): Named| (gguf_name(&name).unwrap_or(name), dims);
        let named: Vec<Named> = shape.named().into_iter().map(own).collect();
        check(path, described, &named, found, content.tensor_infos.keys().map(String::as_str))?;
        let end = end(&content);
        if end > file.len() as u128 {
            let what = format!("it has {} bytes, and its tensors end at {end}", file.len());
            let name = path.to_string_lossy();
            let help = if name.contains(".part") {
                "it is a part of a file: join all, in their order: cat NAME.gguf.part* > NAME.gguf"
            } else {
                "is the file complete? Compare its size with the source's, or fetch it again"
            };
            return Err(metadata::refused(path, (what, help.into())));
        }
        Ok(Gguf {
            path: path.to_path_buf(),
            shape,
            content,
            last: Mutex::default(),
        })
    }

    /// Reads some elements of a parameter. The whole tensor is dequantized for that, once for all
    /// slices that follow each other.
    pub fn read(
        &self,
        spec: &Spec,
        elements: Range<usize>,
        out: &mut [f32],
    ) -> Result<(), BadInput> {
        let name = &spec.whole.name;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != *name {
            let numbers = self.dequantized(name).map_err(|error| {
                let error = in_one_line(&error);
                let what = format!("cannot read {name} of {}: {error}", self.path.display());
                BadInput::new(what, "is the file complete?")
            })?;
            *last = (name.clone(), numbers);
        }
        if last.1.len() != spec.whole.shape.iter().product::<usize>() {
            let what = format!("{} has no {name} {:?}", self.path.display(), spec.whole.shape);
            return Err(BadInput::new(
                what,
                "make the model from the shape that Pretrained::open returned",
            ));
        }
        spec.runs(elements.clone(), |run, at| {
            out[run.start - elements.start..run.end - elements.start]
                .copy_from_slice(&last.1[at..at + run.len()]);
        });
        Ok(())
    }

    fn dequantized(&self, name: &str) -> CandleResult<Vec<f32>> {
        let (mut file, _) = files::open(&self.path)?;
        let tensor =
            self.content
                .tensor(&mut file, &gguf_name(name).unwrap_or_default(), &Device::Cpu)?;
        let numbers = tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
        let turned = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
        Ok(if turned {
            halves(&numbers, self.shape.head(), self.shape.embd)
        } else {
            numbers
        })
    }
}

/// Sorts the interleaved rows of each head into two halves, as Hugging Face has them.
fn halves(rows: &[f32], head: usize, width: usize) -> Vec<f32> {
    let number = |i: usize| (i % (head / 2)) * 2 + i / (head / 2);
    let head_rows = rows.chunks_exact(head * width);
    head_rows
        .flat_map(|rows| {
            (0..head).flat_map(move |i| rows[number(i) * width..][..width].iter().copied())
        })
        .collect()
}

/// A parameter's name in GGUF.
pub(super) fn gguf_name(name: &str) -> Option<String> {
    let plain = match name {
        "model.embed_tokens.weight" => "token_embd.weight",
        "model.norm.weight" => "output_norm.weight",
        "lm_head.weight" => "output.weight",
        _ => {
            let (layer, part) = name.strip_prefix("model.layers.")?.split_once('.')?;
            let part = match part.strip_suffix(".weight")? {
                "input_layernorm" => "attn_norm",
                "post_attention_layernorm" => "ffn_norm",
                "self_attn.q_proj" => "attn_q",
                "self_attn.k_proj" => "attn_k",
                "self_attn.v_proj" => "attn_v",
                "self_attn.o_proj" => "attn_output",
                "mlp.gate_proj" => "ffn_gate",
                "mlp.up_proj" => "ffn_up",
                "mlp.down_proj" => "ffn_down",
                _ => return None,
            };
            return Some(format!("blk.{layer}.{part}.weight"));
        }
    };
    Some(plain.to_string())
}
