//! A model of the Hugging Face Hub, from its config.json.
//!
//! Each family of models has layers of its own, whose counts follow from some keys of the file. The
//! keys, their defaults and the layers are those of transformers 5.23 (`configuration_*.py` and
//! `modeling_*.py`).

use super::names::LONGEST;
use super::sizes::{Described, HEADS, LAYERS, Sizes, WIDTH, check, head_width};
use serde_json::{Map, Value};
use shardlab::error::BadInput;
use shardlab::files;
use shardlab::plan::{Dense, Family, ModelShape};
use std::collections::BTreeSet;
use std::path::Path;

/// The families that are known, by `model_type`.
const FAMILIES: [&str; 11] = [
    "bloom", "falcon", "gemma", "gpt2", "gpt_neox", "llama", "mistral", "opt", "phi3", "qwen2",
    "qwen3",
];

/// Keys of models with experts. A model with at most one has none to choose from.
const EXPERTS: [&str; 5] = [
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_moe_experts",
];

/// Keys that do not change what is counted, nor do those whose names end as in [`HARMLESS_ENDS`].
const HARMLESS: [&str; 46] = [
    "_attn_implementation",
    "_name_or_path",
    "activation",
    "activation_function",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "architectures",
    "attention_softmax_in_fp32",
    "auto_map",
    "bias_dropout_fusion",
    "chunk_size_feed_forward",
    "dtype",
    "gradient_checkpointing",
    "hidden_act",
    "hidden_activation",
    "id2label",
    "init_std",
    "initializer_range",
    "label2id",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "layerdrop",
    "masked_softmax_fusion",
    "max_window_layers",
    "model_type",
    "n_ctx",
    "offset_alibi",
    "original_max_position_embeddings",
    "partial_rotary_factor",
    "prefix",
    "pretraining_tp",
    "return_dict",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary",
    "rotary_emb_base",
    "rotary_pct",
    "scale_attn_by_inverse_layer_idx",
    "scale_attn_weights",
    "slow_but_exact",
    "task_specific_params",
    "torch_dtype",
    "transformers_version",
    "use_cache",
];

/// The ends of names whose keys do not change what is counted: rates of dropout, and the numbers of
/// single tokens.
const HARMLESS_ENDS: [&str; 5] = ["dropout", "pdrop", "dropout_prob", "token_id", "token_ids"];

/// The most bytes of a config.json. Published ones have a few thousand.
const MOST_BYTES: u64 = 1 << 20;

const HELP: &str = "give --config a model's own config.json";

/// Reads a model. The numbers in `sizes` are used instead of the file's.
///
/// # Errors
/// If the file cannot be read, is not JSON, lacks a key, describes a model that is not known or has
/// experts, or if its numbers do not fit together.
pub fn read(path: &Path, sizes: &Sizes) -> Result<Described, BadInput> {
    let name = path.display().to_string();
    let text = files::text(path, MOST_BYTES)
        .map_err(|error| BadInput::new(format!("{name} cannot be read: {error}"), HELP))?;
    parse(&name, &text, sizes)
}

/// As [`read`], of a text that the file of this name has.
fn parse(name: &str, text: &str, sizes: &Sizes) -> Result<Described, BadInput> {
    let all: Value = serde_json::from_str(text).map_err(|error| {
        let line = error.line();
        let column = error.column();
        let at = format!(" at line {line} column {column}");
        let said = error.to_string();
        let said = said.strip_suffix(&at).unwrap_or(&said);
        BadInput::new(format!("{name}, line {line}, column {column}: it is not JSON: {said}"), HELP)
    })?;
    let Value::Object(keys) = all else {
        let what = format!("{name}: it is JSON, but has no keys");
        return Err(BadInput::new(what, HELP));
    };
    let config = Config { keys: &keys, read: BTreeSet::new() };
    let described = config.described(sizes);
    described.map_err(|error| BadInput::new(format!("{name}: {}", error.what), error.help))
}

/// The keys of a config.json, and which of them have been read.
struct Config<'a> {
    keys: &'a Map<String, Value>,
    read: BTreeSet<&'static str>,
}

/// The numbers that all families have.
struct Common {
    sizes: Sizes,
    layers: usize,
    embd: usize,
    heads: usize,
    vocabulary: usize,
    /// Width and heads in the file, without the changes of `sizes`.
    file_embd: usize,
    file_heads: usize,
    /// The longest sequence that the model can take.
    longest: usize,
    block: usize,
}

impl Common {
    /// The width of a head, of which all share the model's width.
    fn head(&self) -> Result<usize, BadInput> {
        head_width(self.embd, self.heads)
    }

    /// Rows of a table of learned positions. It grows with `--seq`.
    fn positions(&self) -> usize {
        self.longest.max(self.block)
    }

    fn kv_heads(&self, usual: usize) -> usize {
        self.sizes.kv_heads.unwrap_or(usual)
    }

    fn ffn(&self, usual: usize) -> usize {
        self.sizes.ffn.unwrap_or(usual)
    }
}

impl<'a> Config<'a> {
    fn described(mut self, sizes: &Sizes) -> Result<Described, BadInput> {
        self.refuse_experts()?;
        let kind = self.family()?;
        let common = self.common(kind, *sizes)?;
        let dense = match kind {
            "bloom" => self.bloom(&common)?,
            "falcon" => self.falcon(&common)?,
            "gpt2" => self.gpt2(&common)?,
            "gpt_neox" => self.gpt_neox(&common)?,
            "opt" => self.opt(&common)?,
            _ => self.like_llama(kind, &common)?,
        };
        let mut shape = ModelShape {
            vocabulary: common.vocabulary,
            block: common.block,
            layers: common.layers,
            heads: common.heads,
            embd: common.embd,
            family: Family::Dense(dense),
        };
        // So that a GPT-2 from a file is planned exactly as one by name.
        let by_name = ModelShape { family: Family::Gpt2, ..shape };
        if by_name.dense() == dense {
            shape = by_name;
        }
        check(&shape)?;
        Ok(Described {
            name: self.name(kind, sizes.any()),
            shape,
            not_understood: self.not_understood(),
        })
    }

    /// A key's value, unless it is missing or null.
    fn given(&mut self, key: &'static str) -> Option<&'a Value> {
        self.read.insert(key);
        self.keys.get(key).filter(|value| !value.is_null())
    }

    /// A whole number from 1 to `most`, by the first of the names that a key has in different
    /// families: an older name counts, if a file has both.
    fn size_if(&mut self, names: &[&'static str], most: usize) -> Result<Option<usize>, BadInput> {
        let given: Vec<(&str, &Value)> =
            names.iter().filter_map(|name| Some((*name, self.given(name)?))).collect();
        let Some((name, value)) = given.first() else {
            return Ok(None);
        };
        let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
        match number {
            Some(number) if (1..=most).contains(&number) => Ok(Some(number)),
            _ => {
                let value = shortened(&value.to_string());
                let what = format!("{name} is {value}, not a whole number from 1 to {most}");
                Err(BadInput::new(what, HELP))
            }
        }
    }

    /// The same of a key that no model of the family lacks.
    fn size(&mut self, names: &[&'static str], most: usize) -> Result<usize, BadInput> {
        self.size_if(names, most)?.ok_or_else(|| {
            let usual_first: Vec<&str> = names.iter().rev().copied().collect();
            BadInput::new(format!("it has no {}", usual_first.join(" or ")), HELP)
        })
    }

    fn flag(&mut self, key: &'static str, usual: bool) -> Result<bool, BadInput> {
        match self.given(key) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(BadInput::new(
                format!("{key} is {}, not true or false", shortened(&value.to_string())),
                HELP,
            )),
        }
    }

    /// Whether a rate of dropout is above 0.
    fn drops(&mut self, key: &'static str, usual: f64) -> bool {
        let rate = self.given(key).map(Value::as_f64);
        rate.unwrap_or(Some(usual)).is_some_and(|rate| rate > 0.0)
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.keys.get(key).and_then(Value::as_str)
    }

    fn refuse_experts(&self) -> Result<(), BadInput> {
        for key in EXPERTS {
            let Some(value) = self.keys.get(key) else {
                continue;
            };
            if !is_off(value) && value.as_u64() > Some(1) {
                return Err(BadInput::new(
                    format!("the model has experts ({key} = {value})"),
                    "the planner knows dense models only",
                ));
            }
        }
        Ok(())
    }

    fn family(&self) -> Result<&'static str, BadInput> {
        let help = format!("the planner knows {}", FAMILIES.join(", "));
        let Some(kind) = self.text("model_type") else {
            return Err(BadInput::new("it has no model_type", help));
        };
        let known = FAMILIES.into_iter().find(|known| *known == kind);
        known.ok_or_else(|| {
            let kind = shortened(kind);
            BadInput::new(format!("its model_type is {kind}, which is not known here"), help)
        })
    }

    fn common(&mut self, kind: &str, sizes: Sizes) -> Result<Common, BadInput> {
        let file_layers = self.size(&["n_layer", "num_hidden_layers"], LAYERS)?;
        let file_embd = self.size(&["n_embed", "n_embd", "hidden_size"], WIDTH)?;
        let file_heads = self.size(&["n_head", "num_attention_heads"], HEADS)?;
        let vocabulary = self.size(&["vocab_size"], WIDTH)?;
        let usual = match kind {
            "gpt2" => 1024,
            "phi3" => 4096,
            "gemma" => 8192,
            "qwen2" | "qwen3" => 32_768,
            "mistral" => 131_072,
            _ => 2048,
        };
        let names = ["max_position_embeddings", "n_positions", "seq_length"];
        let longest = self.size_if(&names, WIDTH)?.unwrap_or(usual);
        Ok(Common {
            sizes,
            layers: sizes.layers.unwrap_or(file_layers),
            embd: sizes.embd.unwrap_or(file_embd),
            heads: sizes.heads.unwrap_or(file_heads),
            vocabulary: sizes.vocab.unwrap_or(vocabulary),
            file_embd,
            file_heads,
            longest,
            block: sizes.seq.unwrap_or(longest.min(LONGEST)),
        })
    }

    /// Llama, Mistral, Qwen, Phi-3 and Gemma: RMSNorms, a gated MLP, rotary positions.
    fn like_llama(&mut self, kind: &str, common: &Common) -> Result<Dense, BadInput> {
        // Key and value heads and the width of a head where the file has no such key.
        let (usual_kv, usual_head) = match kind {
            "mistral" => (8, None),
            "qwen2" => (32, None),
            "qwen3" => (32, Some(128)),
            "gemma" => (16, Some(256)),
            _ => (common.file_heads, None),
        };
        let is_null = self.keys.get("num_key_value_heads").is_some_and(Value::is_null);
        let usual_kv = if is_null { common.file_heads } else { usual_kv };
        let file_kv = self.size_if(&["num_key_value_heads"], HEADS)?;
        let file_kv = file_kv.unwrap_or(usual_kv);
        // What follows from heads and width in the file also follows from those that --heads
        // and --embd change.
        let kv_heads = if file_kv == common.file_heads {
            common.heads
        } else {
            file_kv
        };
        let head = match self.size_if(&["head_dim"], WIDTH)?.or(usual_head) {
            Some(head) if head * common.file_heads != common.file_embd => head,
            _ => common.head()?,
        };
        let ffn = self.size(&["intermediate_size"], WIDTH)?;
        let attention_bias = match kind {
            "llama" | "qwen3" | "gemma" => self.flag("attention_bias", false)?,
            _ => false,
        };
        let mlp_bias = kind == "llama" && self.flag("mlp_bias", false)?;
        Ok(Dense {
            qkv_bias: attention_bias || kind == "qwen2",
            proj_bias: attention_bias,
            mlp_bias,
            qk_norms: kind == "qwen3",
            tied: self.flag("tie_word_embeddings", kind == "gemma")?,
            dropout: kind == "phi3" && self.drops("resid_pdrop", 0.0),
            ..Dense::llama(common.kv_heads(kv_heads), head, common.ffn(ffn))
        })
    }

    fn gpt2(&mut self, common: &Common) -> Result<Dense, BadInput> {
        let ffn = self.size_if(&["n_inner"], WIDTH)?;
        let ffn = common.ffn(ffn.unwrap_or(4 * common.embd));
        let kv_heads = common.kv_heads(common.heads);
        Ok(Dense {
            tied: self.flag("tie_word_embeddings", true)?,
            dropout: self.drops("resid_pdrop", 0.1),
            ..Dense::gpt2(kv_heads, common.head()?, ffn, common.positions())
        })
    }

    /// Biases everywhere, rotary positions, and attention beside the MLP.
    fn gpt_neox(&mut self, common: &Common) -> Result<Dense, BadInput> {
        let ffn = self.size(&["intermediate_size"], WIDTH)?;
        let attention_bias = self.flag("attention_bias", true)?;
        let kv_heads = common.kv_heads(common.heads);
        Ok(Dense {
            qkv_bias: attention_bias,
            proj_bias: attention_bias,
            parallel: self.flag("use_parallel_residual", true)?,
            tied: self.flag("tie_word_embeddings", false)?,
            dropout: self.drops("hidden_dropout", 0.0),
            ..Dense::gpt2(kv_heads, common.head()?, common.ffn(ffn), 0)
        })
    }

    /// A GPT-2 with ALiBi, and a norm after its token table.
    fn bloom(&mut self, common: &Common) -> Result<Dense, BadInput> {
        let ffn = common.ffn(4 * common.embd);
        let kv_heads = common.kv_heads(common.heads);
        Ok(Dense {
            embedding_norm: true,
            tied: self.flag("tie_word_embeddings", true)?,
            dropout: self.drops("hidden_dropout", 0.0),
            ..Dense::gpt2(kv_heads, common.head()?, ffn, 0)
        })
    }

    /// A GPT-2 whose table of positions has two rows more.
    fn opt(&mut self, common: &Common) -> Result<Dense, BadInput> {
        let ffn = self.size(&["ffn_dim"], WIDTH)?;
        let tokens = self.size_if(&["word_embed_proj_dim"], WIDTH)?;
        if let Some(tokens) = tokens.filter(|tokens| *tokens != common.file_embd) {
            let what = format!(
                "its token table is {tokens} wide (word_embed_proj_dim), and its layers {}",
                common.file_embd
            );
            return Err(BadInput::new(what, "the planner knows models of one width only"));
        }
        let biases = self.flag("enable_bias", true)?;
        let has_gains = self.flag("layer_norm_elementwise_affine", true)?;
        let kv_heads = common.kv_heads(common.heads);
        let rows = common.positions() + 2;
        Ok(Dense {
            qkv_bias: biases,
            proj_bias: biases,
            mlp_bias: biases,
            norm_vectors: if has_gains { 2 } else { 0 },
            tied: self.flag("tie_word_embeddings", true)?,
            dropout: self.drops("dropout", 0.1),
            ..Dense::gpt2(kv_heads, common.head()?, common.ffn(ffn), rows)
        })
    }

    /// Few key and value heads, and attention beside the MLP. The new architecture is that of the
    /// 40B and later models.
    fn falcon(&mut self, common: &Common) -> Result<Dense, BadInput> {
        let is_new = self.flag("new_decoder_architecture", false)?;
        let multi_query = self.flag("multi_query", true)?;
        let parallel = self.flag("parallel_attn", true)?;
        let biases = self.flag("bias", false)?;
        let file_kv = self.size_if(&["num_kv_heads"], HEADS)?;
        let kv_heads = match file_kv.filter(|kv_heads| *kv_heads != common.file_heads) {
            _ if multi_query && !is_new => 1,
            Some(kv_heads) if is_new => kv_heads,
            _ => common.heads,
        };
        let shared = self.size_if(&["num_ln_in_parallel_attn"], 2)?;
        let shared = shared.unwrap_or(if is_new { 2 } else { 1 });
        let ffn = self.size_if(&["ffn_hidden_size"], WIDTH)?;
        let ffn = common.ffn(ffn.unwrap_or(4 * common.embd));
        Ok(Dense {
            qkv_bias: biases,
            proj_bias: biases,
            mlp_bias: biases,
            norms: if parallel { shared } else { 2 },
            parallel: parallel || is_new,
            tied: self.flag("tie_word_embeddings", true)?,
            dropout: self.drops("hidden_dropout", 0.0),
            ..Dense::gpt2(common.kv_heads(kv_heads), common.head()?, ffn, 0)
        })
    }

    /// The name in the file, or its family's.
    fn name(&self, kind: &str, is_changed: bool) -> String {
        let given = self.text("_name_or_path").filter(|name| !name.is_empty());
        let name = shortened(given.unwrap_or(kind));
        if is_changed { format!("your {name}") } else { name }
    }

    /// All keys that were not read and may matter. What is null or false is not there.
    fn not_understood(&self) -> Vec<String> {
        let slides = self.keys.get("use_sliding_window") != Some(&Value::Bool(false));
        let matters = |(key, value): &(&String, &Value)| {
            let key = key.as_str();
            let is_harmless = self.read.contains(key)
                || HARMLESS.contains(&key)
                || EXPERTS.contains(&key) // more than one was refused
                || key.starts_with("summary_")
                || HARMLESS_ENDS.iter().any(|end| key.ends_with(end))
                || (key == "sliding_window" && !slides)
                || (key == "layer_types" && is_full(value))
                // OPT normalizes before its layers, unless the file says that it does not.
                || (key == "do_layer_norm_before" && *value == &Value::Bool(true));
            let is_said = !is_off(value) || key == "do_layer_norm_before";
            is_said && !is_harmless
        };
        let all = self.keys.iter().filter(matters);
        all.map(|(key, value)| format!("{} = {}", shortened(key), shortened(&value.to_string())))
            .collect()
    }
}

fn is_off(value: &Value) -> bool {
    value.is_null() || *value == Value::Bool(false)
}

/// Whether all layers have the usual attention to all positions.
fn is_full(types: &Value) -> bool {
    let is_usual = |one: &Value| one == "full_attention";
    types.as_array().is_some_and(|all| all.iter().all(is_usual))
}

/// A text of the file for a line on the screen: its first 40 characters, in ASCII.
fn shortened(text: &str) -> String {
    let mut short = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == 40 => {
                short.push_str("...");
                break;
            }
            ' '..='~' => short.push(c),
            c => short.extend(c.escape_default()),
        }
    }
    short
}

#[cfg(test)]
mod tests;
