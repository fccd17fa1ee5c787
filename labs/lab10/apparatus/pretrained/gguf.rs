//! Weights in a GGUF file, llama.cpp's format. They may be quantized, and are dequantized here.
//!
//! GGUF has its own names and its own order of rows. RoPE there turns neighbouring numbers, so the
//! file has the two halves of each query and key head interleaved.

use super::files::{INDEX, ONE};
use super::instead::JOIN_PIECES;
use super::metadata::{self, Metadata, incomplete};
use super::{
    CONFIG, FETCH_AGAIN, FREQUENCIES, METADATA, about, check, listed, of_other_shape,
    scaled_otherwise, scales_by, unreadable,
};
use candle_core::quantized::gguf_file::{Content, TensorInfo, VersionedMagic};
use candle_core::{Device, Result as CandleResult};
use shapes::config_json::some;
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

/// The folder's GGUF file, if it has one and no safetensors. One for images is no model of texts.
pub(super) fn find(dir: &Path) -> Result<Option<PathBuf>, BadInput> {
    if [ONE, INDEX].iter().any(|name| dir.join(name).exists()) {
        return Ok(None);
    }
    let mut names = listed(dir)?;
    names.retain(|name| name.ends_with(".gguf"));
    if names.len() > 1 {
        names.retain(|name| !name.contains("mmproj"));
    }
    if names.len() < 2 {
        return Ok(names.pop().map(|name| dir.join(name)));
    }
    let all = some(&names);
    let place = dir.display();
    if names.iter().all(|name| name.contains("-of-0")) {
        let what = format!("{place} has a model in {} GGUF files: {all}", names.len());
        return Err(BadInput::new(what, metadata::JOIN));
    }
    let help = format!("name one of them: --model {}", dir.join(&names[0]).display());
    Err(BadInput::new(format!("{place} has several GGUF files: {all}"), help))
}

/// Reads a file's header.
fn header(file: &[u8]) -> Result<Content, BadInput> {
    let header = &file[..file.len().min(HEADER)];
    if has_odd_alignment(header) {
        return Err(incomplete("its general.alignment is no u32 above 0"));
    }
    let content = Content::read(&mut Cursor::new(header));
    content.map_err(|error| incomplete(in_one_line(&error)))
}

/// candle's own words, without the calls that led to them, which `RUST_BACKTRACE` asks for.
pub(super) fn in_one_line(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_string()
}

/// The byte at which a tensor ends, counted from where the first may begin. A broken file's numbers
/// may have any product: `u64::MAX` stands for those above it.
fn end_of(info: &TensorInfo) -> u64 {
    let numbers = info
        .shape
        .dims()
        .iter()
        .fold(1u64, |product, &n| product.saturating_mul(n as u64));
    let blocks = numbers.div_ceil(info.ggml_dtype.block_size() as u64);
    info.offset
        .saturating_add(blocks.saturating_mul(info.ggml_dtype.type_size() as u64))
}

/// Refuses a file that ends before its tensors do.
fn ensure_complete(path: &Path, length: usize, content: &Content) -> Result<(), BadInput> {
    let ends = content.tensor_infos.values().map(end_of);
    let end = content.tensor_data_offset.saturating_add(ends.max().unwrap_or(0));
    if end <= length as u64 {
        return Ok(());
    }
    let is_part = path.to_string_lossy().contains(".part");
    let what = format!("it has {length} bytes, and its tensors end at {end}");
    Err(BadInput::new(what, if is_part { JOIN_PIECES } else { FETCH_AGAIN }))
}

/// Refuses tensors that share bytes, stand off the file's alignment, or have one name. Each has its
/// own bytes in every file that a program has written; candle reads them wherever they are.
fn ensure_apart(file: &[u8], content: &Content) -> Result<(), BadInput> {
    let again = |what: String| Err(BadInput::new(what, FETCH_AGAIN));
    // Behind the magic number and the version, which is 4 bytes as it is.
    let counts = [
        (8, content.tensor_infos.len(), "tensors", "names"),
        (16, content.metadata.len(), "keys", "names of such"),
    ];
    let is_first = matches!(content.magic, VersionedMagic::GgufV1);
    for (at, found, what, names) in counts.into_iter().filter(|_| !is_first) {
        let listed = file.get(at..at + 8).and_then(|count| count.try_into().ok());
        let listed = listed.map_or(0, u64::from_le_bytes);
        if listed != found as u64 {
            return again(format!("its header lists {listed} {what}, and {found} {names}"));
        }
    }
    let alignment = content.metadata.get("general.alignment").and_then(|n| n.to_u32().ok());
    let alignment = u64::from(alignment.unwrap_or(32));
    let mut places: Vec<(u64, u64, &str)> = Vec::new();
    for (name, info) in &content.tensor_infos {
        if info.offset % alignment != 0 {
            let what = format!("{name} begins at byte {} of the tensors", info.offset);
            return again(format!("{what}, which is no multiple of the alignment, {alignment}"));
        }
        places.push((info.offset, end_of(info), name));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        let [(_, end, one), (start, _, other)] = pair else {
            continue;
        };
        if end > start {
            return again(format!("{one} and {other} share bytes"));
        }
    }
    Ok(())
}

impl Gguf {
    /// Opens a file. `config` is the shape of a config.json beside it. Returns notes, too.
    pub fn open(path: &Path, config: Option<&ModelShape>) -> Result<(Gguf, Vec<String>), BadInput> {
        let as_gguf = |error| about(format!("cannot read {} as GGUF", path.display()), error);
        let file = files::map(path).map_err(|error| as_gguf(incomplete(error.to_string())))?;
        let content = header(&file).map_err(as_gguf)?;
        let (shape, mut notes) = Metadata(&content).model(config).map_err(as_gguf)?;
        let own = |(name, dims): Named| (gguf_name(&name), dims);
        let named: Vec<Named> = shape.named().into_iter().map(own).collect();
        let there = content.tensor_infos.iter();
        let there = there.map(|(name, info)| (name.as_str(), info.shape.dims()));
        let described = if config.is_some() { CONFIG } else { METADATA };
        check(path, described, &named, there.collect())?;
        ensure_complete(path, file.len(), &content).map_err(as_gguf)?;
        ensure_apart(&file, &content).map_err(as_gguf)?;
        let gguf = Gguf { path: path.into(), shape, content, last: Mutex::default() };
        notes.extend(gguf.compare_frequencies().map_err(as_gguf)?);
        Ok((gguf, notes))
    }

    pub fn metadata(&self) -> Metadata<'_> {
        Metadata(&self.content)
    }

    /// Compares RoPE's frequencies that the file describes with those of the shape, which may be
    /// config.json's. Returns a note where the file says nothing of a scaling.
    fn compare_frequencies(&self) -> Result<Option<String>, BadInput> {
        let Some(rope) = self.shape.llama().map(|llama| llama.rope) else {
            return Ok(None);
        };
        if !self.content.tensor_infos.contains_key(FREQUENCIES) {
            let note = "config.json scales RoPE's frequencies, and the GGUF file does not: they are scaled";
            return Ok(rope.scaling.map(|_| note.to_string()));
        }
        let factors = self.dequantized(FREQUENCIES);
        let factors = factors.map_err(|error| incomplete(in_one_line(&error)))?;
        if scales_by(&rope, self.shape.head(), &factors) {
            return Ok(None);
        }
        let what = format!("its {FREQUENCIES} scales RoPE, and config.json beside it");
        Err(scaled_otherwise(&what, &rope))
    }

    /// Reads some elements of a parameter. The whole tensor is dequantized for that, once for all
    /// slices that follow each other.
    pub fn read(&self, spec: &Spec, range: Range<usize>, out: &mut [f32]) -> Result<(), BadInput> {
        let name = &spec.whole.name;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0 != *name {
            let bad = |error| {
                let why = format!("{name}: {}", in_one_line(&error));
                unreadable(&self.path, &why, "is the file complete?")
            };
            *last = (name.clone(), self.dequantized(name).map_err(bad)?);
        }
        if last.1.len() != spec.whole.shape.iter().product::<usize>() {
            return Err(of_other_shape(spec));
        }
        spec.runs(range.clone(), |run, at| {
            out[run.start - range.start..run.end - range.start]
                .copy_from_slice(&last.1[at..at + run.len()]);
        });
        Ok(())
    }

    fn dequantized(&self, name: &str) -> CandleResult<Vec<f32>> {
        let (mut file, _) = files::open(&self.path)?;
        let tensor = self.content.tensor(&mut file, &gguf_name(name), &Device::Cpu)?;
        let numbers = tensor.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
        if name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight") {
            return Ok(halves(&numbers, self.shape.head(), self.shape.embd));
        }
        Ok(numbers)
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

/// Parts of parameters' names, here and in GGUF.
const NAMES: [(&str, &str); 13] = [
    ("model.embed_tokens.", "token_embd."),
    ("model.norm.", "output_norm."),
    ("lm_head.", "output."),
    ("model.layers.", "blk."),
    ("input_layernorm.", "attn_norm."),
    ("post_attention_layernorm.", "ffn_norm."),
    ("self_attn.q_proj.", "attn_q."),
    ("self_attn.k_proj.", "attn_k."),
    ("self_attn.v_proj.", "attn_v."),
    ("self_attn.o_proj.", "attn_output."),
    ("mlp.gate_proj.", "ffn_gate."),
    ("mlp.up_proj.", "ffn_up."),
    ("mlp.down_proj.", "ffn_down."),
];

/// A parameter's name in GGUF.
pub(super) fn gguf_name(name: &str) -> String {
    let rename = |name: String, (ours, theirs): &(&str, &str)| name.replace(ours, theirs);
    NAMES.iter().fold(name.to_string(), rename)
}
