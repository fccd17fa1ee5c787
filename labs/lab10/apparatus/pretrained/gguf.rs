//! Weights in a GGUF file, llama.cpp's format. They may be quantized, and are dequantized here.
//!
//! GGUF has its own names and its own order of rows. RoPE there turns neighbouring numbers, so the
//! file has the two halves of each query and key head interleaved.

use super::{check, some};
use candle_core::quantized::gguf_file::{Content, Value};
use candle_core::{Device, Result as CandleResult};
use kit::config_json;
use shardlab::error::BadInput;
use shardlab::files;
use shardlab::plan::{Family, LlamaExtra, ModelShape, Named, Rope};
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

/// The folder's GGUF file, if it has one.
pub(super) fn find(dir: &Path) -> Result<Option<PathBuf>, BadInput> {
    let unreadable = |error| {
        BadInput::new(format!("cannot read {}: {error}", dir.display()), "may you read it?")
    };
    let files = std::fs::read_dir(dir).map_err(unreadable)?.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    match files.len() {
        0 | 1 => Ok(files.pop()),
        _ => {
            let names: Vec<_> = files.iter().map(|path| path.display().to_string()).collect();
            let names = some(&names.iter().map(String::as_str).collect::<Vec<_>>());
            Err(BadInput::new(
                format!("{} has several GGUF files: {names}", dir.display()),
                "name one of them",
            ))
        }
    }
}

impl Gguf {
    /// Opens a file. `config` is the shape of a config.json beside it, which alone knows RoPE's
    /// scaling.
    pub fn open(path: &Path, config: Option<&ModelShape>) -> Result<Gguf, BadInput> {
        let bad = |what: &dyn std::fmt::Display| {
            let what = format!("cannot read {} as GGUF: {what}", path.display());
            BadInput::new(what, "is the file complete, and a Llama's?")
        };
        let file = files::map(path).map_err(|error| bad(&error))?;
        let header = &file[..file.len().min(HEADER)];
        if has_odd_alignment(header) {
            return Err(bad(&"its general.alignment is no u32 above 0"));
        }
        let content = Content::read(&mut Cursor::new(header)).map_err(|error| bad(&error))?;
        let shape = match config {
            Some(config) => *config,
            None if content.tensor_infos.contains_key("rope_freqs.weight") => {
                return Err(bad(
                    &"it scales RoPE's frequencies, and config.json, which says how, is not beside it",
                ));
            }
            None => shape(&content).map_err(|what| bad(&what))?,
        };
        config_json::check(&shape)?;
        let found = |name: &str| {
            let info = content.tensor_infos.get(&gguf_name(name)?)?;
            Some(info.shape.dims().to_vec())
        };
        let named: Vec<Named> = shape.named();
        let known: Vec<Option<String>> = named.iter().map(|(name, _)| gguf_name(name)).collect();
        let own = ["rope_freqs.weight", "output.weight"];
        let extra = content
            .tensor_infos
            .keys()
            .filter(|name| !known.contains(&Some((*name).clone())));
        check(
            path,
            &named,
            found,
            extra.map(String::as_str).filter(|name| !own.contains(name)),
        )?;
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
fn gguf_name(name: &str) -> Option<String> {
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

/// The shape that a file's metadata describes.
fn shape(content: &Content) -> Result<ModelShape, String> {
    let entry = |key: &str| content.metadata.get(key);
    match entry("general.architecture").map(Value::to_string) {
        Some(Ok(kind)) if kind == "llama" => {}
        Some(Ok(kind)) => return Err(format!("its architecture is {kind}, not llama")),
        _ => return Err("it has no general.architecture".into()),
    }
    if let Some(Ok(kind)) = entry("llama.rope.scaling.type").map(Value::to_string)
        && kind != "none"
    {
        return Err(format!("its RoPE scaling {kind} is not supported"));
    }
    let size = |key: &str| {
        let value = entry(key).ok_or_else(|| format!("it has no {key}"))?;
        value
            .to_u64()
            .map(|n| n as usize)
            .map_err(|_| format!("{key} is not a whole number"))
    };
    let number = |key: &str, default: f64| {
        let value = entry(key).map(|value| value.to_f32());
        value.map_or(Ok(default), |value| {
            value.map(f64::from).map_err(|_| format!("{key} is not a number"))
        })
    };
    let table = content
        .tensor_infos
        .get("token_embd.weight")
        .map(|info| info.shape.dims().to_vec());
    let heads = size("llama.attention.head_count")?;
    let kv_heads = "llama.attention.head_count_kv";
    Ok(ModelShape {
        vocabulary: table
            .and_then(|dims| dims.first().copied())
            .ok_or("it has no token_embd.weight")?,
        block: size("llama.context_length")?,
        layers: size("llama.block_count")?,
        heads,
        embd: size("llama.embedding_length")?,
        family: Family::Llama(LlamaExtra {
            kv_heads: if entry(kv_heads).is_some() {
                size(kv_heads)?
            } else {
                heads
            },
            ffn: size("llama.feed_forward_length")?,
            rope: Rope {
                theta: number("llama.rope.freq_base", 10_000.0)?,
                scaling: None,
            },
            norm_eps: number("llama.attention.layer_norm_rms_epsilon", 1e-5)?,
            tied: !content.tensor_infos.contains_key("output.weight"),
        }),
    })
}
