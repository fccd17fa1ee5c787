//! A model of the Hugging Face Hub, from its config.json.
//!
//! Each family of models has layers of its own, whose counts follow from some keys of the file. The keys, their defaults and the
//! layers are those of transformers 5.23 (`configuration_*.py` and `modeling_*.py`).

use super::names::{Described, HEADS, LAYERS, LONGEST, Sizes, WIDTH, check, head_width};
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

/// Keys that do not change what is counted. So do all whose names end as in [`HARMLESS_ENDS`].
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

/// The ends of names whose keys do not change what is counted: rates of dropout, and the numbers of single tokens.
const HARMLESS_ENDS: [&str; 5] = ["dropout", "pdrop", "dropout_prob", "token_id", "token_ids"];

/// The most bytes of a config.json. Published ones have a few thousand.
const MOST_BYTES: u64 = 1 << 20;

const HELP: &str = "give --config a model's own config.json";

/// Reads a model. The numbers in `sizes` are used instead of the file's.
///
/// # Errors
/// If the file cannot be read, is not JSON, lacks a key, describes a model that is not known or has experts, or if its numbers do
/// not fit together.
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
        BadInput::new(
            format!("{name}, line {line}, column {column}: it is not JSON: {said}"),
            HELP,
        )
    })?;
    let Value::Object(keys) = all else {
        let what = format!("{name}: it is JSON, but has no keys");
        return Err(BadInput::new(what, HELP));
    };
    let config = Config {
        keys: &keys,
        read: BTreeSet::new(),
    };
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
        let by_name = ModelShape {
            family: Family::Gpt2,
            ..shape
        };
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

    /// A whole number from 1 to `most`, by the first of the names that a key has in different families.
    fn size_if(&mut self, names: &[&'static str], most: usize) -> Result<Option<usize>, BadInput> {
        let given: Vec<(&str, &Value)> = names
            .iter()
            .filter_map(|name| Some((*name, self.given(name)?)))
            .collect();
        let Some((name, value)) = given.first() else {
            return Ok(None);
        };
        let number = value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok());
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
        self.size_if(names, most)?
            .ok_or_else(|| BadInput::new(format!("it has no {}", names.join(" or ")), HELP))
    }

    fn flag(&mut self, key: &'static str, usual: bool) -> Result<bool, BadInput> {
        match self.given(key) {
            None => Ok(usual),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(value) => Err(BadInput::new(
                format!(
                    "{key} is {}, not true or false",
                    shortened(&value.to_string())
                ),
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
            BadInput::new(
                format!("its model_type is {kind}, which is not known here"),
                help,
            )
        })
    }

    fn common(&mut self, kind: &str, sizes: Sizes) -> Result<Common, BadInput> {
        let file_layers = self.size(&["num_hidden_layers", "n_layer"], LAYERS)?;
        let file_embd = self.size(&["hidden_size", "n_embed", "n_embd"], WIDTH)?;
        let file_heads = self.size(&["num_attention_heads", "n_head"], HEADS)?;
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
        let is_null = self
            .keys
            .get("num_key_value_heads")
            .is_some_and(Value::is_null);
        let usual_kv = if is_null { common.file_heads } else { usual_kv };
        let file_kv = self.size_if(&["num_key_value_heads"], HEADS)?;
        let file_kv = file_kv.unwrap_or(usual_kv);
        // What follows from heads and width in the file also follows from those that --heads and --embd change.
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

    /// A GPT-2 with ALiBi, and a norm behind its token table.
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
            return Err(BadInput::new(
                what,
                "the planner knows models of one width only",
            ));
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

    /// Few key and value heads, and attention beside the MLP. The new architecture is that of the 40B and later models.
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
        if is_changed {
            format!("your {name}")
        } else {
            name
        }
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
mod tests {
    use super::*;
    use serde_json::json;

    const NONE: Sizes = Sizes {
        layers: None,
        embd: None,
        heads: None,
        kv_heads: None,
        ffn: None,
        vocab: None,
        seq: None,
    };

    fn with(config: &Value, sizes: &Sizes) -> Result<Described, BadInput> {
        parse("my.json", &config.to_string(), sizes)
    }

    fn small(kind: &str) -> Value {
        json!({"model_type": kind, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
               "num_key_value_heads": 4, "intermediate_size": 96, "vocab_size": 100})
    }

    fn changed(config: &Value, changes: &Value) -> Value {
        let mut config = config.clone();
        for (key, value) in changes.as_object().unwrap() {
            config[key] = value.clone();
        }
        config
    }

    /// The numbers of published models, and the parameters that transformers 5.23 gives them: its own layers were built on
    /// PyTorch's meta device and counted.
    #[test]
    fn published_models_have_the_parameters_of_their_layers() {
        let numbers = |kind: &str, [layers, embd, heads, vocab]: [usize; 4]| {
            json!({"model_type": kind, "num_hidden_layers": layers, "hidden_size": embd,
                   "num_attention_heads": heads, "vocab_size": vocab})
        };
        for (config, more, parameters) in [
            // Llama 3 8B
            (
                numbers("llama", [32, 4096, 32, 128_256]),
                json!({"intermediate_size": 14_336, "num_key_value_heads": 8}),
                8_030_261_248,
            ),
            // Mistral 7B, without the key whose usual value is 8; and NeMo, whose heads are narrower than the model.
            (
                numbers("mistral", [32, 4096, 32, 32_000]),
                json!({"intermediate_size": 14_336}),
                7_241_732_096,
            ),
            (
                numbers("mistral", [40, 5120, 32, 131_072]),
                json!({"intermediate_size": 14_336, "num_key_value_heads": 8, "head_dim": 128}),
                12_247_782_400,
            ),
            // Qwen 2.5 7B and 0.5B
            (
                numbers("qwen2", [28, 3584, 28, 152_064]),
                json!({"intermediate_size": 18_944, "num_key_value_heads": 4}),
                7_615_616_512,
            ),
            (
                numbers("qwen2", [24, 896, 14, 151_936]),
                json!({"intermediate_size": 4864, "num_key_value_heads": 2, "tie_word_embeddings": true}),
                494_032_768,
            ),
            // Qwen 3 8B and 0.6B, whose heads are wider than the model
            (
                numbers("qwen3", [36, 4096, 32, 151_936]),
                json!({"intermediate_size": 12_288, "num_key_value_heads": 8}),
                8_190_735_360,
            ),
            (
                numbers("qwen3", [28, 1024, 16, 151_936]),
                json!({"intermediate_size": 3072, "num_key_value_heads": 8, "tie_word_embeddings": true}),
                596_049_920,
            ),
            // GPT-NeoX 20B, Pythia 6.9B
            (
                numbers("gpt_neox", [44, 6144, 64, 50_432]),
                json!({"intermediate_size": 24_576}),
                20_554_567_680,
            ),
            (
                numbers("gpt_neox", [32, 4096, 32, 50_432]),
                json!({"intermediate_size": 16_384}),
                6_857_302_016,
            ),
            // BLOOM, with the names that its file has
            (
                json!({"model_type": "bloom", "vocab_size": 250_880}),
                json!({"n_embed": 14_336, "n_layer": 70, "num_attention_heads": 112}),
                176_247_271_424,
            ),
            // OPT 125M and 66B
            (
                numbers("opt", [12, 768, 12, 50_272]),
                json!({"ffn_dim": 3072, "word_embed_proj_dim": 768}),
                125_239_296,
            ),
            (
                numbers("opt", [64, 9216, 72, 50_272]),
                json!({"ffn_dim": 36_864}),
                65_719_701_504,
            ),
            // Falcon RW 1B, 7B, 40B and 11B: four combinations of norms and heads
            (
                numbers("falcon", [24, 2048, 32, 50_304]),
                json!({"multi_query": false, "parallel_attn": false, "bias": true, "alibi": true}),
                1_311_625_216,
            ),
            (
                numbers("falcon", [32, 4544, 71, 65_024]),
                json!({}),
                6_921_720_704,
            ),
            (
                numbers("falcon", [60, 8192, 128, 65_024]),
                json!({"new_decoder_architecture": true, "num_kv_heads": 8}),
                41_303_293_952,
            ),
            (
                numbers("falcon", [60, 4096, 32, 65_024]),
                json!({"new_decoder_architecture": true, "num_kv_heads": 8, "num_ln_in_parallel_attn": 1,
                       "ffn_hidden_size": 16_384, "tie_word_embeddings": false}),
                11_102_822_400,
            ),
            // GPT-2 XL, Phi-3 mini, Gemma 7B
            (
                json!({"model_type": "gpt2", "vocab_size": 50_257}),
                json!({"n_embd": 1600, "n_layer": 48, "n_head": 25}),
                1_557_611_200,
            ),
            (
                numbers("phi3", [32, 3072, 32, 32_064]),
                json!({"intermediate_size": 8192}),
                3_821_079_552,
            ),
            (
                numbers("gemma", [28, 3072, 16, 256_000]),
                json!({"intermediate_size": 24_576}),
                8_537_680_896,
            ),
        ] {
            let config = changed(&config, &more);
            let described = with(&config, &NONE).unwrap();
            assert_eq!(described.shape.parameters(), parameters, "{config}");
            assert!(described.not_understood.is_empty(), "{described:?}");
            assert_eq!(described.name, config["model_type"], "{config}");
        }
    }

    #[test]
    fn a_gpt2_is_the_one_by_name() {
        let config = json!({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50_257});
        let by_name = super::super::model("gpt2").unwrap();
        assert_eq!(with(&config, &NONE).unwrap().shape, by_name);
        // A table of learned positions keeps its rows, whatever part of them is used, and grows when it must.
        let positions = |seq| {
            let sizes = Sizes {
                seq: Some(seq),
                ..NONE
            };
            with(&config, &sizes).unwrap().shape.positions() / 768
        };
        assert_eq!([positions(512), positions(2048)], [1024, 2048]);
        let wide = changed(&config, &json!({"n_inner": 1000, "resid_pdrop": 0}));
        let dense = with(&wide, &NONE).unwrap().shape.dense();
        assert_eq!((dense.ffn, dense.dropout), (1000, false));
    }

    /// Attention beside the MLP, dropout, and what else is no parameter.
    #[test]
    fn what_has_no_parameters_is_read_too() {
        let dense = |kind: &str, more: Value| {
            let config = changed(&small(kind), &more);
            with(&config, &NONE).unwrap().shape.dense()
        };
        assert!(dense("gpt_neox", json!({})).parallel);
        assert!(!dense("gpt_neox", json!({"use_parallel_residual": false})).parallel);
        assert!(dense("falcon", json!({})).parallel);
        assert!(
            dense(
                "falcon",
                json!({"parallel_attn": false, "new_decoder_architecture": true})
            )
            .parallel
        );
        assert!(!dense("falcon", json!({"parallel_attn": false})).parallel);
        assert!(!dense("bloom", json!({})).parallel && !dense("bloom", json!({})).dropout);
        assert!(dense("opt", json!({"ffn_dim": 96})).dropout);
        assert!(!dense("opt", json!({"ffn_dim": 96, "dropout": 0.0})).dropout);
        assert!(dense("gpt_neox", json!({"hidden_dropout": 0.1})).dropout);
        assert!(!dense("gpt_neox", json!({"attention_bias": false})).qkv_bias);
        assert!(dense("gpt_neox", json!({"attention_bias": false})).mlp_bias);
        assert!(dense("llama", json!({"attention_bias": true})).proj_bias);
        assert!(dense("llama", json!({"mlp_bias": true})).mlp_bias);
        assert!(!dense("mistral", json!({"attention_bias": true})).qkv_bias);
        assert_eq!(
            dense("llama", json!({"num_key_value_heads": null})).kv_heads,
            8
        );
        assert_eq!(
            dense("mistral", json!({"num_key_value_heads": null})).kv_heads,
            8
        );
        assert_eq!(
            dense(
                "opt",
                json!({"ffn_dim": 96, "layer_norm_elementwise_affine": false})
            )
            .norm_vectors,
            0
        );
    }

    #[test]
    fn sequences_are_those_of_pretraining() {
        let block = |kind: &str, more: Value, seq| {
            let config = changed(&small(kind), &more);
            with(&config, &Sizes { seq, ..NONE }).unwrap().shape.block
        };
        let long = json!({"max_position_embeddings": 131_072});
        assert_eq!(block("llama", long.clone(), None), 8192);
        assert_eq!(block("llama", long, Some(32_768)), 32_768);
        assert_eq!(
            block("llama", json!({"max_position_embeddings": 4096}), None),
            4096
        );
        assert_eq!(block("bloom", json!({"seq_length": 1024}), None), 1024);
        assert_eq!(
            [
                block("bloom", json!({}), None),
                block("falcon", json!({}), None)
            ],
            [2048; 2]
        );
        assert_eq!(
            [
                block("mistral", json!({}), None),
                block("phi3", json!({}), None)
            ],
            [8192, 4096]
        );
    }

    #[test]
    fn flags_change_single_numbers() {
        let all = Sizes {
            layers: Some(3),
            embd: Some(128),
            heads: Some(16),
            kv_heads: Some(2),
            ffn: Some(40),
            vocab: Some(50),
            seq: Some(77),
        };
        let described = with(&small("qwen2"), &all).unwrap();
        let shape = described.shape;
        assert_eq!([shape.layers, shape.embd, shape.heads], [3, 128, 16]);
        assert_eq!([shape.kv_heads(), shape.ffn(), shape.head()], [2, 40, 8]);
        assert_eq!([shape.vocabulary, shape.block], [50, 77]);
        assert_eq!(described.name, "your qwen2");
        for kind in ["bloom", "falcon", "gpt_neox", "gpt2", "opt"] {
            let config = changed(&small(kind), &json!({"ffn_dim": 96}));
            let shape = with(&config, &all).unwrap().shape;
            assert_eq!(
                [shape.kv_heads(), shape.ffn(), shape.head()],
                [2, 40, 8],
                "{kind}"
            );
        }
        // What follows from another number follows from the new one.
        let wider = Sizes {
            embd: Some(128),
            heads: Some(16),
            ..NONE
        };
        let bloom = with(&small("bloom"), &wider).unwrap().shape;
        assert_eq!([bloom.ffn(), bloom.kv_heads(), bloom.head()], [512, 16, 8]);
        let llama = changed(
            &small("llama"),
            &json!({"num_key_value_heads": 8, "head_dim": 8}),
        );
        let llama = with(
            &llama,
            &Sizes {
                heads: Some(4),
                ..NONE
            },
        )
        .unwrap()
        .shape;
        assert_eq!([llama.kv_heads(), llama.head()], [4, 16]);
        let falcon = json!({"new_decoder_architecture": true, "num_kv_heads": 8});
        let falcon = with(&changed(&small("falcon"), &falcon), &wider)
            .unwrap()
            .shape;
        assert_eq!(falcon.kv_heads(), 16);
        // A width of heads that is the file's own stays. The length of sequences makes no other model of it.
        let own = changed(
            &small("llama"),
            &json!({"head_dim": 10, "_name_or_path": "me/mine"}),
        );
        let longer = Sizes {
            seq: Some(512),
            ..NONE
        };
        assert_eq!(with(&own, &longer).unwrap().name, "me/mine");
        assert_eq!(with(&own, &wider).unwrap().shape.head(), 10);
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_value() {
        let more = json!({
            "architectures": ["MistralForCausalLM"], "torch_dtype": "bfloat16", "bos_token_id": 1,
            "attention_dropout": 0.0, "rope_theta": 1e6, "transformers_version": "5.0", "use_cache": true,
            "hidden_act": "silu", "rms_norm_eps": 1e-5, "nothing": null, "off": false, "num_experts": 1,
            "layer_types": ["full_attention", "full_attention"], "summary_type": "mean",
            "sliding_window": 4096, "quantization_config": {"bits": 4}, "a\u{202e}b": "c\u{1b}[2J".repeat(9),
        });
        let found = with(&changed(&small("mistral"), &more), &NONE).unwrap();
        let mut names = found.not_understood.clone();
        names.sort();
        assert_eq!(
            names[1..],
            [
                "quantization_config = {\"bits\":4}",
                "sliding_window = 4096"
            ]
        );
        assert!(
            names[0].starts_with("a\\u{202e}b = \"c\\u001b[2J"),
            "{names:?}"
        );
        assert!(
            names[0].ends_with("...") && names[0].is_ascii(),
            "{names:?}"
        );

        let not_read = |more: Value| {
            let config = changed(&small("qwen2"), &more);
            with(&config, &NONE).unwrap().not_understood
        };
        let off =
            json!({"use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28});
        assert!(not_read(off).is_empty());
        let on = json!({"use_sliding_window": true, "sliding_window": 4096});
        assert_eq!(
            not_read(on),
            ["sliding_window = 4096", "use_sliding_window = true"]
        );
        let mixed = json!({"layer_types": ["sliding_attention", "full_attention"]});
        assert_eq!(not_read(mixed).len(), 1);
        // OPT's two ways to normalize: the usual one is not there.
        assert!(not_read(json!({"do_layer_norm_before": true})).is_empty());
        assert_eq!(
            not_read(json!({"do_layer_norm_before": false})),
            ["do_layer_norm_before = false"]
        );
    }

    #[test]
    fn what_is_wrong_is_told_before_any_work() {
        let llama = small("llama");
        for (changes, says, helps) in [
            (
                json!({"model_type": "mamba"}),
                "its model_type is mamba",
                "knows bloom, falcon",
            ),
            (
                json!({"model_type": null}),
                "it has no model_type",
                "mistral",
            ),
            (
                json!({"model_type": "mixtral", "num_local_experts": 8}),
                "has experts (num_local_experts = 8)",
                "dense models only",
            ),
            (
                json!({"num_experts": 64}),
                "has experts (num_experts = 64)",
                "dense",
            ),
            (
                json!({"n_routed_experts": 160}),
                "has experts (n_routed_experts = 160)",
                "dense",
            ),
            (
                json!({"hidden_size": null}),
                "it has no hidden_size or n_embed or n_embd",
                "config.json",
            ),
            (
                json!({"intermediate_size": null}),
                "it has no intermediate_size",
                "config.json",
            ),
            (
                json!({"vocab_size": null}),
                "it has no vocab_size",
                "config.json",
            ),
            (
                json!({"model_type": "opt"}),
                "it has no ffn_dim",
                "config.json",
            ),
            (
                json!({"hidden_size": "64"}),
                "hidden_size is \"64\", not a whole number from 1 to 16777216",
                "config.json",
            ),
            (
                json!({"hidden_size": 64.5}),
                "hidden_size is 64.5, not a whole number",
                "config.json",
            ),
            (
                json!({"num_hidden_layers": 0}),
                "num_hidden_layers is 0, not a whole number from 1 to 10000",
                "config.json",
            ),
            (
                json!({"num_hidden_layers": 10_001}),
                "num_hidden_layers is 10001",
                "config.json",
            ),
            (
                json!({"vocab_size": 1 << 25}),
                "vocab_size is 33554432",
                "config.json",
            ),
            (
                json!({"num_attention_heads": -8}),
                "num_attention_heads is -8",
                "config.json",
            ),
            (
                json!({"attention_bias": "yes"}),
                "attention_bias is \"yes\", not true or false",
                "config.json",
            ),
            (
                json!({"num_attention_heads": 7}),
                "7 heads cannot share a width of 64 evenly",
                "a width of 70",
            ),
            (
                json!({"num_key_value_heads": 3}),
                "8 query heads cannot share 3 key and value heads",
                "divisor of 8",
            ),
            (
                json!({"num_attention_heads": 65_536, "head_dim": 1024, "num_key_value_heads": 1}),
                "65536 heads of width 1024 are 67108864 wide",
                "16777216",
            ),
            (
                json!({"num_hidden_layers": 10_000, "hidden_size": 1 << 24, "intermediate_size": 1 << 24}),
                "1.7e19 parameters is more than the planner counts",
                "at most 1e15",
            ),
            (
                json!({"model_type": "opt", "ffn_dim": 96, "word_embed_proj_dim": 32}),
                "its token table is 32 wide (word_embed_proj_dim), and its layers 64",
                "one width",
            ),
        ] {
            let error = with(&changed(&llama, &changes), &NONE).unwrap_err();
            assert!(
                error.what.starts_with("my.json: ")
                    && error.what.contains(says)
                    && error.help.contains(helps),
                "{changes}: {error}"
            );
        }
        for (text, says) in [
            (
                "{\n \"model_type\": llama}",
                "my.json, line 2, column 16: it is not JSON: expected value",
            ),
            ("", "my.json, line 1, column 0: it is not JSON: EOF"),
            ("[1]", "my.json: it is JSON, but has no keys"),
        ] {
            let error = parse("my.json", text, &NONE).unwrap_err();
            assert_eq!(
                (error.what.starts_with(says), error.help.as_str()),
                (true, HELP),
                "{error}"
            );
        }
        let deep = "[".repeat(100_000);
        assert!(
            parse("my.json", &deep, &NONE)
                .unwrap_err()
                .what
                .contains("recursion")
        );
    }

    #[test]
    fn files_that_cannot_be_read_are_refused() {
        let error = read(Path::new("no/such.json"), &NONE).unwrap_err();
        assert!(
            error.what.starts_with("no/such.json cannot be read: "),
            "{error}"
        );
        let path = std::env::temp_dir().join(format!("lab11-large-{}.json", std::process::id()));
        std::fs::write(&path, " ".repeat(MOST_BYTES as usize + 1)).unwrap();
        let error = read(&path, &NONE).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(
            error.what.contains("at most 1048576 are expected"),
            "{error}"
        );
        assert!(
            read(&std::env::temp_dir(), &NONE)
                .unwrap_err()
                .what
                .contains("a folder")
        );
    }
}
