//! What a GGUF file says of itself: the keys that are read, those that must have one value, those
//! that change nothing, and all others, which are named once.

use super::files::{own_head, untied};
use super::{FREQUENCIES, Text};
use candle_core::quantized::gguf_file::{Content, Value};
use shapes::config_json::{self, some, wide_heads};
use shardlab::error::BadInput;
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope};

/// How keys begin that may have any value: the longest sequence; where a file is from and how it
/// was quantized; its own tokenizer, in place of which tokenizer.json is read; what yarn's scaling
/// would use, which is refused.
const ANY_VALUE: &str = "
    general. imatrix. llama.context_length llama.rope.scaling. llama.tensor_data_layout
    mradermacher. quantize. split. tokenizer.";

const LLAMAS: &str =
    "models that run here are Llama 2, 3, 3.1 and 3.2, SmolLM2, TinyLlama and the like";
pub(super) const JOIN: &str = "join the parts: llama-gguf-split --merge FIRST-PART MODEL.gguf";

/// The refusal of what no complete file of a Llama says. The caller names the file.
pub(super) fn incomplete(what: impl Into<String>) -> BadInput {
    BadInput::new(what, "is the file complete, and a Llama's?")
}

fn unsupported(what: String) -> BadInput {
    BadInput::new(what, LLAMAS)
}

fn number(value: &Value) -> Option<f64> {
    let whole = value.to_u64().map(|number| number as f64);
    let signed = whole.or_else(|_| value.to_i32().map(f64::from));
    let number = signed.or_else(|_| value.to_f32().map(f64::from));
    number.or_else(|_| value.to_f64()).ok()
}

/// A file's metadata.
pub(super) struct Metadata<'a>(pub &'a Content);

impl Metadata<'_> {
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.metadata.get(key)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.to_string().ok().map(String::as_str)
    }

    /// A number of every layer: one for all, or a list with equal ones.
    fn number(&self, key: &str) -> Result<Option<f64>, BadInput> {
        let Some(mut value) = self.get(key) else {
            return Ok(None);
        };
        if let Value::Array(list) = value {
            let count = list.len();
            let layers = self.get("llama.block_count").and_then(number);
            if count == 0 || layers != Some(count as f64) {
                let what = format!("{key} is a list of {count}, not of a number for each layer");
                return Err(incomplete(what));
            }
            value = &list[0];
            if list.iter().any(|other| number(other) != number(value)) {
                return Err(unsupported(format!("{key} differs from layer to layer")));
            }
        }
        let wrong = || incomplete(format!("{key} is not a number"));
        number(value).map(Some).ok_or_else(wrong)
    }

    fn needed(&self, key: &str) -> Result<f64, BadInput> {
        self.number(key)?.ok_or_else(|| incomplete(format!("it has no {key}")))
    }

    fn size(&self, key: &str) -> Result<usize, BadInput> {
        let number = self.needed(key)?;
        if number.fract() != 0.0 || !(0.0..1e9).contains(&number) {
            return Err(incomplete(format!("{key} is {number}, not a whole number")));
        }
        Ok(number as usize)
    }

    /// Refuses what is no language model in one file, before its tensors are looked at.
    fn ensure_whole(&self) -> Result<(), BadInput> {
        let kind = self.text("general.type").unwrap_or("model");
        if kind != "model" {
            let is = match kind {
                "mmproj" => "a projector for images or sound",
                "adapter" => "an adapter, which changes another model's weights",
                _ => "no language model",
            };
            let what = format!("it is {is} (general.type is {kind})");
            return Err(BadInput::new(what, "give the GGUF file of the language model"));
        }
        let parts = self.number("split.count")?.unwrap_or(1.0);
        if parts > 1.0 {
            let part = self.number("split.no")?.unwrap_or(0.0) + 1.0;
            let what = format!("it is part {part} of a model in {parts} files (split.count)");
            return Err(BadInput::new(what, JOIN));
        }
        match self.text("general.architecture") {
            Some("llama") => Ok(()),
            Some(kind) => Err(unsupported(format!("its architecture is {kind}, not llama"))),
            None => Err(incomplete("it has no general.architecture")),
        }
    }

    /// The model's shape, and notes. It is that of a config.json beside the file, which alone knows
    /// RoPE's scaling, or what the file says. A head of its own is the model's in either case.
    pub fn model(
        &self,
        config: Option<&ModelShape>,
    ) -> Result<(ModelShape, Vec<String>), BadInput> {
        self.ensure_whole()?;
        let has = |name: &str| self.0.tensor_infos.contains_key(name);
        let mut notes = Vec::new();
        let shape = match config {
            Some(config) if config.tied() && has("output.weight") => {
                notes.push(own_head("the GGUF file has an output.weight: it is the head"));
                untied(config)
            }
            Some(config) => *config,
            None if has(FREQUENCIES) => {
                let how = "config.json, which says how, is not beside it";
                return Err(incomplete(format!("it scales RoPE's frequencies, and {how}")));
            }
            None => self.shape()?,
        };
        config_json::check(&shape)?;
        notes.extend(self.check(&shape)?);
        Ok((shape, notes))
    }

    /// The shape that the file describes.
    fn shape(&self) -> Result<ModelShape, BadInput> {
        let table = self.0.tensor_infos.get("token_embd.weight");
        let rows = table.and_then(|info| info.shape.dims().first().copied());
        let heads = self.size("llama.attention.head_count")?;
        let kv_heads = self.number("llama.attention.head_count_kv")?.unwrap_or(heads as f64);
        let theta = self.number("llama.rope.freq_base")?.unwrap_or(10_000.0);
        Ok(ModelShape {
            vocabulary: rows.ok_or_else(|| incomplete("it has no token_embd.weight"))?,
            block: self.size("llama.context_length")?,
            layers: self.size("llama.block_count")?,
            heads,
            embd: self.size("llama.embedding_length")?,
            family: Family::Llama(LlamaExtra {
                kv_heads: kv_heads as usize,
                ffn: self.size("llama.feed_forward_length")?,
                rope: Rope { theta, scaling: None },
                norm_eps: self.needed("llama.attention.layer_norm_rms_epsilon")?,
                tied: !self.0.tensor_infos.contains_key("output.weight"),
            }),
            experts: None,
        })
    }

    /// A token of the tokenizer's keys, if it is one of the model's.
    fn token(&self, key: &str) -> Result<Option<u32>, BadInput> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let table = self.0.tensor_infos.get("token_embd.weight");
        let rows = table.and_then(|info| info.shape.dims().first().copied()).unwrap_or(0);
        let found = number(value).filter(|n| n.fract() == 0.0 && (0.0..rows as f64).contains(n));
        let wrong = || incomplete(format!("{key} is {value:?}, and the model has {rows} tokens"));
        found.map(|token| Some(token as u32)).ok_or_else(wrong)
    }

    /// Takes the tokens that end a text from this file, if no configuration has told `ends`, or
    /// returns a note where they differ.
    pub fn compare_ends(&self, ends: &mut Vec<u32>) -> Result<Option<String>, BadInput> {
        let [text, turn] = ["eos", "eot"].map(|kind| format!("tokenizer.ggml.{kind}_token_id"));
        let own = self.token(&text)?;
        if ends.is_empty() {
            ends.extend(own);
            ends.extend(self.token(&turn)?.filter(|turn| Some(*turn) != own));
            return Ok(None);
        }
        Ok(own.filter(|own| !ends.contains(own)).map(|own| {
            let theirs: Vec<String> = ends.iter().map(u32::to_string).collect();
            let theirs = theirs.join(", ");
            format!("the GGUF file ends a text with token {own} ({text}), and the configuration beside it with {theirs}: so does this program")
        }))
    }

    /// Refuses a tokenizer with the file's tokens in another order, or other ones, or that begins
    /// a text with another token.
    pub fn compare_tokens(&self, text: &Text) -> Result<(), BadInput> {
        let key = "tokenizer.ggml.tokens";
        let other = |what: String| {
            let help = "the two belong to different models: fetch the tokenizer.json of this one";
            Err(BadInput::new(format!("tokenizer.json is not the GGUF file's: {what}"), help))
        };
        let tokens = match self.get(key) {
            Some(Value::Array(tokens)) => &tokens[..],
            _ => &[],
        };
        for (number, token) in (0..).zip(tokens) {
            let (Ok(own), Some(piece)) = (token.to_string(), text.piece(number)) else {
                continue;
            };
            // llama.cpp writes the text of an added token, and tokenizer.json its form within.
            let elsewhere = text.number(own).is_some_and(|other| other != number);
            if *own != piece && (elsewhere || !text.is_added(number)) {
                return other(format!("its token {number} is {piece:?}, and in {key} {own:?}"));
            }
        }
        let key = "tokenizer.ggml.bos_token_id";
        let begins = text.tokens("")?;
        if let (Some(own), [first, ..]) = (self.token(key)?, &begins[..])
            && own != *first
        {
            return other(format!("it begins a text with token {first}, and {key} is {own}"));
        }
        Ok(())
    }

    /// Refuses keys by which llama.cpp would compute other than a Llama of this shape does here,
    /// would refuse the file, or that contradict its tensors or a config.json beside it, from which
    /// the shape may be. Returns a note about keys that are not known.
    fn check(&self, shape: &ModelShape) -> Result<Option<String>, BadInput> {
        let Some(llama) = shape.llama() else { return Ok(None) };
        let factor = "llama.rope.scaling.factor";
        let scaling = self.text("llama.rope.scaling.type").unwrap_or("none given");
        let is_linear = scaling == "linear" && self.get(factor).is_some();
        if !is_linear && !scaling.starts_with("none") {
            let key = "llama.rope.scaling.type";
            return Err(unsupported(format!(
                "its RoPE scaling {scaling} ({key}) is not supported"
            )));
        }
        let tokens = shape.vocabulary;
        let head = shape.head() as f64;
        let wide = |width: Option<f64>| wide_heads(shape, width.unwrap_or(head) as usize);
        let key_length = "llama.attention.key_length";
        let value_length = "llama.attention.value_length";
        let experts = "models with experts do not run here";
        let scales = "RoPE's linear scaling is not supported";
        let other = "config.json beside it says otherwise";
        let rows = [
            ("llama.expert_count", 0.0, experts),
            ("llama.expert_used_count", 0.0, experts),
            (key_length, head, &wide(self.number(key_length)?)),
            (value_length, head, &wide(self.number(value_length)?)),
            ("llama.rope.dimension_count", head, "RoPE on a part of a head is not supported"),
            (factor, 1.0, scales),
            ("llama.rope.scale_linear", 1.0, scales),
            ("llama.rope.scaling.attn_factor", 1.0, "a scaled RoPE is not supported"),
            // llama.cpp asks this of every architecture, since 2026.
            ("llama.attention.causal", 1.0, "attention to later tokens is not supported"),
            ("llama.vocab_size", tokens as f64, &format!("the token table has {tokens} rows")),
            ("llama.attention.head_count", shape.heads as f64, other),
            ("llama.attention.head_count_kv", llama.kv_heads as f64, other),
            ("llama.attention.layer_norm_rms_epsilon", llama.norm_eps, other),
            ("llama.block_count", shape.layers as f64, other),
            ("llama.embedding_length", shape.embd as f64, other),
            ("llama.feed_forward_length", llama.ffn as f64, other),
            ("llama.rope.freq_base", llama.rope.theta, other),
        ];
        for (key, usual, why) in rows {
            let found = self.number(key)?.unwrap_or(usual);
            // A factor of 0 is none, and a scaling of none has no factor.
            let scales_nothing = why == scales && (found == 0.0 || scaling == "none");
            // A file has fewer digits than config.json.
            if (found - usual).abs() > 5e-7 * usual && !scales_nothing {
                return Err(unsupported(format!("{key} is {found}: {why}")));
            }
        }
        if let Some(Value::Array(list)) = self.get("tokenizer.ggml.tokens")
            && list.len() != tokens
        {
            let has = list.len();
            let table = format!("the token table {tokens} rows");
            return Err(incomplete(format!("tokenizer.ggml.tokens has {has}, and {table}")));
        }
        let known = |key: &str| {
            rows.iter().any(|row| row.0 == key)
                || ANY_VALUE.split_whitespace().any(|begin| key.starts_with(begin))
        };
        let all = self.0.metadata.keys().map(String::as_str);
        let mut names: Vec<&str> = all.filter(|key| !known(key)).collect();
        names.sort_unstable();
        let says = "the GGUF file has keys that are not known here and were not read";
        Ok((!names.is_empty()).then(|| format!("{says}: {}", some(&names))))
    }
}
