//! What a GGUF file says of itself: the keys that are read, those that must have one value, those
//! that change nothing, and all others, which are named once.

use candle_core::quantized::gguf_file::{Content, Value};
use kit::config_json::{some, wide_heads};
use shardlab::error::BadInput;
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope};

/// Keys that are read as a Llama's numbers.
const NUMBERS: [&str; 8] = [
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.block_count",
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "llama.rope.freq_base",
];

/// Keys that change nothing: where a file is from and how it was quantized; its own tokenizer, in
/// place of which tokenizer.json is read; what yarn's scaling would use, which is refused.
const CHANGE_NOTHING: [&str; 9] = [
    "general.",
    "imatrix.",
    "llama.rope.scaling.",
    "llama.tensor_data_layout",
    "llama.vocab_size",
    "mradermacher.",
    "quantize.",
    "split.",
    "tokenizer.",
];

const LLAMAS: &str =
    "models that run here are Llama 2, 3, 3.1 and 3.2, SmolLM2, TinyLlama and the like";
const COMPLETE: &str = "is the file complete, and a Llama's?";

/// A file's metadata.
pub(super) struct Metadata<'a>(pub &'a Content);

/// What is wrong, and what to do about it.
type Wrong = (String, String);

fn number(value: &Value) -> Option<f64> {
    let whole = value.to_u64().map(|number| number as f64);
    let signed = whole.or_else(|_| value.to_i32().map(f64::from));
    let number = signed.or_else(|_| value.to_f32().map(f64::from));
    number.or_else(|_| value.to_f64()).ok()
}

impl Metadata<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.metadata.get(key)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.to_string().ok().map(String::as_str)
    }

    /// A number of every layer: one for all, or a list with equal ones.
    fn number(&self, key: &str) -> Result<Option<f64>, Wrong> {
        let wrong = |what: &str| Err((format!("{key} {what}"), COMPLETE.into()));
        let value = match self.get(key) {
            None => return Ok(None),
            Some(Value::Array(list)) if Some(list.len()) != self.layers() => {
                return wrong(&format!(
                    "is a list of {}, not of a number for each layer",
                    list.len()
                ));
            }
            Some(Value::Array(list)) => match list.split_first() {
                Some((first, rest)) if rest.iter().all(|one| number(one) == number(first)) => first,
                Some(_) => {
                    let what = format!("{key} differs from layer to layer");
                    return Err((what, LLAMAS.into()));
                }
                None => return wrong("is an empty list"),
            },
            Some(value) => value,
        };
        number(value).map_or_else(|| wrong("is not a number"), |number| Ok(Some(number)))
    }

    fn layers(&self) -> Option<usize> {
        Some(number(self.get("llama.block_count")?)? as usize)
    }

    fn needed(&self, key: &str) -> Result<f64, Wrong> {
        self.number(key)?.ok_or_else(|| (format!("it has no {key}"), COMPLETE.into()))
    }

    fn size(&self, key: &str) -> Result<usize, Wrong> {
        let number = self.needed(key)?;
        if number.fract() != 0.0 || !(0.0..1e9).contains(&number) {
            return Err((format!("{key} is {number}, not a whole number"), COMPLETE.into()));
        }
        Ok(number as usize)
    }

    /// Refuses what is no language model in one file, before its tensors are looked at.
    pub fn ensure_whole(&self) -> Result<(), Wrong> {
        let kind = self.text("general.type").unwrap_or("model");
        let beside = "give the GGUF file of the language model";
        let is = match kind {
            "model" => None,
            "mmproj" => Some("it is a projector for images or sound"),
            "adapter" => Some("it is an adapter, which changes another model's weights"),
            _ => Some("it is no language model"),
        };
        if let Some(is) = is {
            return Err((format!("{is} (general.type is {kind})"), beside.into()));
        }
        let parts = self.number("split.count")?.unwrap_or(1.0);
        if parts > 1.0 {
            let part = self.number("split.no")?.unwrap_or(0.0) + 1.0;
            let what = format!("it is part {part} of a model in {parts} files (split.count)");
            return Err((what, JOIN.into()));
        }
        match self.text("general.architecture") {
            Some("llama") => Ok(()),
            Some(kind) => Err((format!("its architecture is {kind}, not llama"), LLAMAS.into())),
            None => Err(("it has no general.architecture".into(), COMPLETE.into())),
        }
    }

    /// The shape that the file describes.
    pub fn shape(&self) -> Result<ModelShape, Wrong> {
        let table = self.0.tensor_infos.get("token_embd.weight");
        let rows = table.and_then(|info| info.shape.dims().first().copied());
        let heads = self.size("llama.attention.head_count")?;
        let kv_heads = "llama.attention.head_count_kv";
        let kv_heads = if self.get(kv_heads).is_some() {
            self.size(kv_heads)?
        } else {
            heads
        };
        Ok(ModelShape {
            vocabulary: rows
                .ok_or_else(|| ("it has no token_embd.weight".to_string(), COMPLETE.into()))?,
            block: self.size("llama.context_length")?,
            layers: self.size("llama.block_count")?,
            heads,
            embd: self.size("llama.embedding_length")?,
            family: Family::Llama(LlamaExtra {
                kv_heads,
                ffn: self.size("llama.feed_forward_length")?,
                rope: Rope {
                    theta: self.number("llama.rope.freq_base")?.unwrap_or(10_000.0),
                    scaling: None,
                },
                norm_eps: self.needed("llama.attention.layer_norm_rms_epsilon")?,
                tied: !self.0.tensor_infos.contains_key("output.weight"),
            }),
        })
    }

    /// Refuses keys by which llama.cpp would compute other than a Llama of this shape does here,
    /// would refuse the file, or that contradict its tensors or a config.json beside it, from which
    /// the shape may be.
    pub fn ensure_computes(&self, shape: &ModelShape) -> Result<(), Wrong> {
        let scaling = self.text("llama.rope.scaling.type").unwrap_or("none given");
        let has_factor = self.get("llama.rope.scaling.factor").is_some();
        let is_known = ["none", "none given"].contains(&scaling);
        if !(is_known || scaling == "linear" && has_factor) {
            let what =
                format!("its RoPE scaling {scaling} (llama.rope.scaling.type) is not supported");
            return Err((what, LLAMAS.into()));
        }
        let Some(llama) = shape.llama() else {
            return Ok(());
        };
        let [heads, kv_heads, head] = [shape.heads, llama.kv_heads, shape.head()].map(|n| n as f64);
        let [ffn, layers, embd] = [llama.ffn, shape.layers, shape.embd].map(|n| n as f64);
        let tokens = shape.vocabulary as f64;
        // A factor of 0 is none, and a scaling of none has no factor.
        let factors = if scaling == "none" {
            [0.0, f64::INFINITY]
        } else {
            [0.0, 1.0]
        };
        let wide = |key: &str| -> Result<String, Wrong> {
            Ok(wide_heads(shape, self.number(key)?.unwrap_or(head) as usize))
        };
        let key_length = "llama.attention.key_length";
        let value_length = "llama.attention.value_length";
        let experts = "models with experts do not run here";
        let scales = "RoPE's linear scaling is not supported";
        let other = "config.json beside it says otherwise";
        for (key, [usual, also], why) in [
            ("llama.expert_count", [0.0; 2], experts),
            ("llama.expert_used_count", [0.0; 2], experts),
            (key_length, [head; 2], &wide(key_length)?),
            (value_length, [head; 2], &wide(value_length)?),
            (
                "llama.rope.dimension_count",
                [head; 2],
                "RoPE on a part of a head is not supported",
            ),
            ("llama.rope.scaling.factor", factors, scales),
            ("llama.rope.scale_linear", factors, scales),
            ("llama.rope.scaling.attn_factor", [1.0; 2], "a scaled RoPE is not supported"),
            ("llama.attention.causal", [1.0; 2], "attention to later tokens is not supported"),
            ("llama.vocab_size", [tokens; 2], &format!("the token table has {tokens} rows")),
            ("llama.attention.head_count", [heads; 2], other),
            ("llama.attention.head_count_kv", [kv_heads; 2], other),
            ("llama.attention.layer_norm_rms_epsilon", [llama.norm_eps; 2], other),
            ("llama.block_count", [layers; 2], other),
            ("llama.embedding_length", [embd; 2], other),
            ("llama.feed_forward_length", [ffn; 2], other),
            ("llama.rope.freq_base", [llama.rope.theta; 2], other),
        ] {
            let found = self.number(key)?.unwrap_or(usual);
            // A file has fewer digits than config.json.
            let is = |number: f64| (found - number).abs() <= 5e-7 * number.abs();
            if !is(usual) && !is(also) {
                return Err((format!("{key} is {found}: {why}"), LLAMAS.into()));
            }
        }
        match self.get("tokenizer.ggml.tokens") {
            Some(Value::Array(list)) if list.len() != shape.vocabulary => {
                let has = list.len();
                let what =
                    format!("tokenizer.ggml.tokens has {has}, and the token table {tokens} rows");
                Err((what, COMPLETE.into()))
            }
            _ => Ok(()),
        }
    }

    /// A sentence about the keys that are in no list, if there are some.
    pub fn unread(&self) -> Option<String> {
        let known = |key: &str| {
            let must = ["llama.expert_", "llama.attention.key_", "llama.attention.value_"];
            let must = must.into_iter().chain(["llama.rope.dimension_count"]);
            let mut must = must.chain(["llama.rope.scale_linear", "llama.attention.causal"]);
            NUMBERS.contains(&key)
                || CHANGE_NOTHING.iter().any(|start| key.starts_with(start))
                || must.any(|start| key.starts_with(start))
        };
        let all = self.0.metadata.keys().map(String::as_str);
        let mut names: Vec<&str> = all.filter(|key| !known(key)).collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| {
            format!(
                "the GGUF file has keys that are not known here and were not read: {}",
                some(&names)
            )
        })
    }
}

pub(super) const JOIN: &str = "join the parts: llama-gguf-split --merge FIRST-PART MODEL.gguf";

/// A wrong file's refusal.
pub(super) fn refused(path: &std::path::Path, (what, help): Wrong) -> BadInput {
    BadInput::new(format!("cannot read {} as GGUF: {what}", path.display()), help)
}
