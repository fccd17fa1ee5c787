//! Hugging Face's config.json: the file with a model's numbers.
//!
//! [`planned`] reads what a plan counts, of any family that is known here. [`llama`] reads a model
//! that is computed with, and refuses keys that would change its arithmetic. Keys and defaults are
//! those of transformers 5.23.

use serde::Deserialize;
use serde_json::{Value, json};
use shardlab::error::BadInput;
use shardlab::plan::{Dense, Family, LlamaExtra, ModelShape, Rope, RopeScaling};

/// The families that can be read, by `model_type`.
const FAMILIES: [&str; 4] = ["llama", "mistral", "qwen2", "qwen3"];

/// The keys that are read. What is missing and what is null have the same meaning.
#[derive(Deserialize)]
struct Keys {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    intermediate_size: usize,
    max_position_embeddings: usize,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    rope_scaling: Option<RopeKeys>,
    /// Both of RoPE's keys, since transformers 5.
    rope_parameters: Option<RopeKeys>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    partial_rotary_factor: Option<f64>,
    sliding_window: Option<Value>,
    quantization_config: Option<Value>,
}

#[derive(Deserialize)]
struct RopeKeys {
    rope_theta: Option<f64>,
    rope_type: Option<String>,
    /// The older name of `rope_type`. Some files have both.
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(flatten)]
    rest: Value,
}

/// The scaling of Llama 3.1.
#[derive(Deserialize)]
struct Llama3 {
    factor: f64,
    low_freq_factor: f64,
    high_freq_factor: f64,
    original_max_position_embeddings: usize,
}

/// The model that a config.json describes, to plan with: its parameters, its widths, its heads.
/// What changes none of them, such as RoPE's scaling or a sliding window, is not read.
///
/// # Errors
/// If the text is not JSON, lacks a key, describes a family that is not known, or its numbers do
/// not fit together.
pub fn planned(json: &str) -> Result<ModelShape, BadInput> {
    let (kind, keys) = read(json)?;
    keys.planned(kind)
}

/// The Llama that a config.json describes, to compute with.
///
/// # Errors
/// As [`planned`], and if it is no Llama or computes other than this library's.
pub fn llama(json: &str) -> Result<ModelShape, BadInput> {
    let (kind, keys) = read(json)?;
    if kind != "llama" {
        return Err(unsupported(format!("model_type is {kind}, not llama")));
    }
    let planned = keys.planned(kind)?;
    let dense = planned.dense();
    let activation = keys.hidden_act.as_deref().unwrap_or("silu");
    for (differs, key) in [
        (!["silu", "swish"].contains(&activation), "hidden_act"),
        (dense.qkv_bias, "attention_bias"),
        (dense.mlp_bias, "mlp_bias"),
        (planned.q_width() != planned.embd, "head_dim"),
        (keys.sliding_window.is_some(), "sliding_window"),
        (keys.quantization_config.is_some(), "quantization_config"),
        (
            keys.partial_rotary_factor.is_some_and(|part| part != 1.0),
            "partial_rotary_factor",
        ),
    ] {
        if differs {
            return Err(unsupported(format!("its {key} changes what it computes")));
        }
    }
    let family = Family::Llama(LlamaExtra {
        kv_heads: dense.kv_heads,
        ffn: dense.ffn,
        rope: keys.rope()?,
        norm_eps: keys.rms_norm_eps.unwrap_or(1e-6),
        tied: dense.tied,
    });
    let shape = ModelShape { family, ..planned };
    check(&shape)?;
    Ok(shape)
}

/// A Llama's shape as config.json; `None` for another family.
pub fn to_config(shape: &ModelShape) -> Option<String> {
    let llama = shape.llama()?;
    let scaling = llama.rope.scaling.map(|scaling| {
        json!({
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_block,
        })
    });
    let config = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.embd,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": llama.kv_heads,
        "intermediate_size": llama.ffn,
        "max_position_embeddings": shape.block,
        "rope_theta": llama.rope.theta,
        "rope_scaling": scaling,
        "rms_norm_eps": llama.norm_eps,
        "tie_word_embeddings": llama.tied,
    });
    Some(format!("{config:#}\n"))
}

/// Refuses numbers that no model has, and heads that do not divide each other. With these bounds 64
/// bits count every product.
///
/// # Errors
/// If a number is 0 or absurd, or numbers do not fit together.
pub fn check(shape: &ModelShape) -> Result<(), BadInput> {
    let bad = |what: String| Err(BadInput::new(what, "correct it, or choose a different model"));
    let within = |what: &str, number: usize, most: usize| match number {
        number if (1..=most).contains(&number) => Ok(()),
        number => bad(format!("the model has {number} {what}, not 1 to {most}")),
    };
    let heads = shape.heads;
    within("layers", shape.layers, 10_000)?;
    within("query heads", heads, 4096)?;
    within("numbers in its width", shape.embd, 1 << 20)?;
    within("tokens in its vocabulary", shape.vocabulary, 1 << 24)?;
    within("positions", shape.block, 1 << 24)?;
    let dense = shape.dense();
    within("key and value heads", dense.kv_heads, 4096)?;
    within("numbers in a head", dense.head, 4096)?;
    within("numbers in its MLP's width", dense.ffn, 1 << 20)?;
    if !heads.is_multiple_of(dense.kv_heads) {
        let kv_heads = dense.kv_heads;
        return bad(format!(
            "{heads} query heads cannot share {kv_heads} key and value heads evenly"
        ));
    }
    let Some(llama) = shape.llama() else {
        return Ok(());
    };
    if !head_width(shape.embd, heads)?.is_multiple_of(2) {
        return bad(format!("heads of width {} have no pairs for RoPE", dense.head));
    }
    let eps = llama.norm_eps;
    let theta = llama.rope.theta;
    let scales = |scaling: RopeScaling| {
        let low = scaling.low_freq_factor;
        scaling.factor > 0.0 && low > 0.0 && low < scaling.high_freq_factor
    };
    if !(eps > 0.0 && eps < 1.0 && theta > 1.0 && llama.rope.scaling.is_none_or(scales)) {
        return bad(format!(
            "rms_norm_eps {eps}, rope_theta {theta} or RoPE's scaling is out of range"
        ));
    }
    Ok(())
}

/// The width of each of `heads` heads that share a model's width.
///
/// # Errors
/// If they cannot.
pub fn head_width(embd: usize, heads: usize) -> Result<usize, BadInput> {
    if heads > 0 && embd.is_multiple_of(heads) {
        return Ok(embd / heads);
    }
    Err(BadInput::new(
        format!("{heads} heads cannot share a width of {embd} evenly"),
        "choose a width that is a multiple of the heads",
    ))
}

/// The family and the keys.
fn read(json: &str) -> Result<(&'static str, Keys), BadInput> {
    let all: Value = serde_json::from_str(json)
        .map_err(|error| incomplete(format!("config.json is not JSON: {error}")))?;
    let kind = all.get("model_type").and_then(Value::as_str).unwrap_or("missing");
    let Some(kind) = FAMILIES.into_iter().find(|known| *known == kind) else {
        let what = format!("config.json's model_type is {kind}, which is not known here");
        let help = format!("families that can be read are {}", FAMILIES.join(", "));
        return Err(BadInput::new(what, help));
    };
    Ok((kind, serde_json::from_str(json).map_err(unusable)?))
}

impl Keys {
    fn planned(&self, kind: &str) -> Result<ModelShape, BadInput> {
        let llama = kind == "llama";
        let heads = self.num_attention_heads;
        let kv_heads = match self.num_key_value_heads {
            None if !llama => return Err(incomplete("config.json has no num_key_value_heads")),
            given => given.unwrap_or(heads),
        };
        let head = match self.head_dim {
            None if kind == "qwen3" => return Err(incomplete("config.json has no head_dim")),
            Some(head) => head,
            None => head_width(self.hidden_size, heads)?,
        };
        let attention_bias = (llama || kind == "qwen3") && self.attention_bias == Some(true);
        let shape = ModelShape {
            vocabulary: self.vocab_size,
            block: self.max_position_embeddings,
            layers: self.num_hidden_layers,
            heads,
            embd: self.hidden_size,
            family: Family::Dense(Dense {
                qkv_bias: attention_bias || kind == "qwen2",
                proj_bias: attention_bias,
                mlp_bias: llama && self.mlp_bias == Some(true),
                qk_norms: kind == "qwen3",
                tied: self.tie_word_embeddings == Some(true),
                ..Dense::llama(kv_heads, head, self.intermediate_size)
            }),
        };
        check(&shape)?;
        Ok(shape)
    }

    fn rope(&self) -> Result<Rope, BadInput> {
        let keys = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = keys.and_then(|keys| keys.rope_theta).or(self.rope_theta);
        let plain = Rope { theta: theta.unwrap_or(10_000.0), scaling: None };
        let Some(keys) = keys else {
            return Ok(plain);
        };
        match keys.rope_type.as_deref().or(keys.kind.as_deref()) {
            None | Some("default") => Ok(plain),
            Some("llama3") => {
                let llama3: Llama3 = serde_json::from_value(keys.rest.clone()).map_err(unusable)?;
                let scaling = RopeScaling {
                    factor: llama3.factor,
                    low_freq_factor: llama3.low_freq_factor,
                    high_freq_factor: llama3.high_freq_factor,
                    original_block: llama3.original_max_position_embeddings,
                };
                Ok(Rope { scaling: Some(scaling), ..plain })
            }
            Some(other) => {
                Err(unsupported(format!("RoPE's kind is {other}, not default or llama3")))
            }
        }
    }
}

fn incomplete(what: impl Into<String>) -> BadInput {
    BadInput::new(what, "is it the model's own, complete file?")
}

fn unusable(error: serde_json::Error) -> BadInput {
    incomplete(format!("config.json cannot be used: {error}"))
}

fn unsupported(what: String) -> BadInput {
    BadInput::new(
        format!("this model is not a Llama that runs here: {what}"),
        "models that run here are Llama 2, 3, 3.1 and 3.2, SmolLM2, TinyLlama and the like",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llamas::{self, LLAMAS};

    /// The config of stories260k with one key changed.
    fn with(key: &str, value: Value) -> String {
        let preset = llamas::named("stories260k").unwrap();
        let mut config: Value = serde_json::from_str(&to_config(&preset).unwrap()).unwrap();
        config[key] = value;
        config.to_string()
    }

    #[test]
    fn every_preset_is_read_as_it_was_written() {
        for (name, shape) in LLAMAS {
            let config = to_config(shape).unwrap();
            assert_eq!(llama(&config).unwrap(), *shape, "{name}");
            assert_eq!(planned(&config).unwrap().dense(), shape.dense(), "{name}");
        }
    }

    /// The numbers of published models, and the parameters that transformers 5.23 gives them: its
    /// own layers were built on PyTorch's meta device and counted.
    #[test]
    fn published_models_have_the_parameters_of_their_layers() {
        // Layers, width, heads, key and value heads, MLP, tokens.
        for (kind, numbers, more, parameters) in [
            // Llama 3 8B, Mistral 7B, and NeMo, whose heads are narrower than the model
            ("llama", [32, 4096, 32, 8, 14_336, 128_256], json!({}), 8_030_261_248u64),
            ("mistral", [32, 4096, 32, 8, 14_336, 32_000], json!({}), 7_241_732_096),
            (
                "mistral",
                [40, 5120, 32, 8, 14_336, 131_072],
                json!({"head_dim": 128, "sliding_window": 4096}),
                12_247_782_400,
            ),
            // Qwen 2.5 7B and 0.5B, Qwen 3 8B and 0.6B, whose heads are wider than the model
            ("qwen2", [28, 3584, 28, 4, 18_944, 152_064], json!({}), 7_615_616_512),
            (
                "qwen2",
                [24, 896, 14, 2, 4864, 151_936],
                json!({"tie_word_embeddings": true}),
                494_032_768,
            ),
            (
                "qwen3",
                [36, 4096, 32, 8, 12_288, 151_936],
                json!({"head_dim": 128}),
                8_190_735_360,
            ),
            (
                "qwen3",
                [28, 1024, 16, 8, 3072, 151_936],
                json!({"head_dim": 128, "tie_word_embeddings": true}),
                596_049_920,
            ),
        ] {
            let [layers, embd, heads, kv_heads, ffn, tokens] = numbers;
            let mut config = json!({
                "model_type": kind, "num_hidden_layers": layers, "hidden_size": embd,
                "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                "intermediate_size": ffn, "vocab_size": tokens, "max_position_embeddings": 4096,
            });
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let config = config.to_string();
            assert_eq!(planned(&config).unwrap().parameters(), parameters, "{config}");
        }
    }

    #[test]
    fn other_arithmetic_is_refused_by_name() {
        for (key, value, says) in [
            ("model_type", json!("qwen2"), "model_type is qwen2, not llama"),
            ("model_type", json!("mixtral"), "read are llama, mistral, qwen2, qwen3"),
            ("hidden_act", json!("gelu"), "its hidden_act"),
            ("attention_bias", json!(true), "its attention_bias"),
            ("mlp_bias", json!(true), "its mlp_bias"),
            ("sliding_window", json!(4096), "its sliding_window"),
            ("quantization_config", json!({"bits": 4}), "its quantization_config"),
            ("partial_rotary_factor", json!(0.5), "its partial_rotary_factor"),
            ("head_dim", json!(128), "its head_dim"),
            (
                "rope_scaling",
                json!({"type": "linear", "factor": 2.0}),
                "RoPE's kind is linear",
            ),
            (
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 2.0}),
                "missing field `low_freq_factor`",
            ),
            (
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.0,
                       "high_freq_factor": 1.0, "original_max_position_embeddings": 64}),
                "RoPE's scaling is out of range",
            ),
            ("num_key_value_heads", json!(3), "8 query heads cannot share 3"),
            ("hidden_size", json!(60), "8 heads cannot share a width of 60"),
            ("hidden_size", json!(72), "heads of width 9 have no pairs"),
            ("hidden_size", json!("64"), "expected usize"),
            ("num_hidden_layers", json!(0), "0 layers, not 1 to 10000"),
            ("num_attention_heads", json!(0), "0 heads cannot share"),
            ("vocab_size", Value::Null, "config.json cannot be used"),
        ] {
            let error = llama(&with(key, value)).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("help:"), "{error}");
        }
        let error = llama("{").unwrap_err().to_string();
        assert!(error.contains("config.json is not JSON"), "{error}");
        let qwen = with("num_key_value_heads", Value::Null).replace("\"llama\"", "\"qwen2\"");
        assert!(planned(&qwen).unwrap_err().what.contains("no num_key_value_heads"));
    }

    /// Missing keys have transformers' defaults, and its version 5 has RoPE's keys in one place.
    #[test]
    fn defaults_and_new_keys() {
        let read = |key, value| llama(&with(key, value)).unwrap();
        assert_eq!(read("num_key_value_heads", Value::Null).kv_heads(), 8);
        assert!(!read("tie_word_embeddings", Value::Null).tied());
        assert_eq!(read("rms_norm_eps", Value::Null).llama().unwrap().norm_eps, 1e-6);
        let rope = json!({"rope_type": "default", "rope_theta": 5000.0});
        let shape = read("rope_parameters", rope);
        assert_eq!(shape.llama().unwrap().rope, Rope { theta: 5000.0, scaling: None });
    }
}
