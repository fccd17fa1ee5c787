//! Reads and writes the shape as Hugging Face's config.json.

use serde_json::{Value, json};
use shardlab::error::BadInput;
use shardlab::plan::{Family, LlamaExtra, ModelShape, Rope, RopeScaling};

/// The shape that a config.json describes.
///
/// # Errors
/// If the text is not JSON, lacks a key, or describes a model whose arithmetic is different from
/// this library's Llama.
pub fn from_config(json: &str) -> Result<ModelShape, BadInput> {
    let config: Value = serde_json::from_str(json).map_err(|error| {
        BadInput::new(format!("config.json is not JSON: {error}"), "is the file complete?")
    })?;
    let config = Config(&config);
    config.refuse_other_arithmetic()?;
    let heads = config.size("num_attention_heads")?;
    let kv_heads = match config.given("num_key_value_heads") {
        Some(_) => config.size("num_key_value_heads")?,
        None => heads,
    };
    let shape = ModelShape {
        vocabulary: config.size("vocab_size")?,
        block: config.size("max_position_embeddings")?,
        layers: config.size("num_hidden_layers")?,
        heads,
        embd: config.size("hidden_size")?,
        family: Family::Llama(LlamaExtra {
            kv_heads,
            ffn: config.size("intermediate_size")?,
            rope: config.rope()?,
            norm_eps: config.number("rms_norm_eps", 1e-6)?,
            tied: config.flag("tie_word_embeddings")?,
        }),
    };
    check_shape(&shape)?;
    if config.given("head_dim").is_some() && config.size("head_dim")? != shape.head() {
        let heads = shape.heads;
        let embd = shape.embd;
        return Err(unsupported(format!(
            "head_dim is {}, not {embd} / {heads} heads",
            config.size("head_dim")?
        )));
    }
    Ok(shape)
}

/// A Llama's shape as config.json; `None` for a GPT.
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

/// Refuses numbers that no Llama can have.
///
/// # Errors
/// If it is no Llama, a size is 0 or absurd, or sizes do not divide each other as heads and RoPE
/// need it.
pub fn check_shape(shape: &ModelShape) -> Result<(), BadInput> {
    let bad =
        |what: String| Err(BadInput::new(what, "correct config.json, or choose a different model"));
    let Some(&llama) = shape.llama() else {
        return bad(format!("{shape:?} is no Llama's shape"));
    };
    let embd = shape.embd;
    let heads = shape.heads;
    let kv_heads = llama.kv_heads;
    // Products of these sizes must not overflow: no model comes near.
    let sizes = [shape.vocabulary, embd, shape.layers, heads, kv_heads, llama.ffn, shape.block];
    if sizes.iter().any(|&size| size == 0 || size > 1 << 30) {
        return bad(format!("a Llama's sizes are 1 to 2^30, not {sizes:?}"));
    }
    // Each layer has nine names, which are listed.
    if shape.layers > 1 << 16 {
        return bad(format!("a Llama has at most 2^16 layers, not {}", shape.layers));
    }
    if !embd.is_multiple_of(heads) || !(embd / heads).is_multiple_of(2) {
        return bad(format!(
            "a width of {embd} does not give {heads} heads an even width each, which RoPE's pairs need"
        ));
    }
    if !heads.is_multiple_of(kv_heads) {
        return bad(format!(
            "{heads} query heads cannot share {kv_heads} key and value heads evenly"
        ));
    }
    let in_range = llama.norm_eps > 0.0 && llama.norm_eps < 1.0 && llama.rope.theta > 1.0;
    if !in_range {
        return bad(format!(
            "rms_norm_eps {} or rope_theta {} is out of range",
            llama.norm_eps, llama.rope.theta
        ));
    }
    Ok(())
}

/// The keys of a config.json.
struct Config<'a>(&'a Value);

impl Config<'_> {
    /// A key's value, unless it is missing or null.
    fn given(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn size(&self, key: &str) -> Result<usize, BadInput> {
        let value = self.given(key).ok_or_else(|| {
            BadInput::new(
                format!("config.json has no {key}"),
                "a Llama's config.json has it: is this the model's own file?",
            )
        })?;
        value
            .as_u64()
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| wrong(key, value, "a whole number"))
    }

    fn number(&self, key: &str, default: f64) -> Result<f64, BadInput> {
        match self.given(key) {
            Some(value) => value.as_f64().ok_or_else(|| wrong(key, value, "a number")),
            None => Ok(default),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, BadInput> {
        match self.given(key) {
            Some(value) => value.as_bool().ok_or_else(|| wrong(key, value, "true or false")),
            None => Ok(false),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.given(key)
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_string))
    }

    /// Refuses the keys by which other models of the family differ.
    fn refuse_other_arithmetic(&self) -> Result<(), BadInput> {
        match self.text("model_type") {
            Some(kind) if kind == "llama" => {}
            Some(kind) => return Err(unsupported(format!("model_type is {kind}, not llama"))),
            None => {
                return Err(BadInput::new("config.json has no model_type", "it must be llama"));
            }
        }
        let activation = self.text("hidden_act").unwrap_or_else(|| "silu".into());
        if activation != "silu" && activation != "swish" {
            return Err(unsupported(format!("hidden_act is {activation}, not silu")));
        }
        for key in ["attention_bias", "mlp_bias"] {
            if self.flag(key)? {
                return Err(unsupported(format!(
                    "{key} is true: the matrices here have no biases"
                )));
            }
        }
        for (key, what) in [
            ("sliding_window", "attention here sees all earlier positions"),
            ("quantization_config", "the weights must be f32, f16 or bf16"),
            ("num_local_experts", "an MLP here has no experts"),
        ] {
            if let Some(value) = self.given(key) {
                return Err(unsupported(format!("{key} is {value}: {what}")));
            }
        }
        let rotated = self.number("partial_rotary_factor", 1.0)?;
        if rotated != 1.0 {
            return Err(unsupported(format!(
                "partial_rotary_factor is {rotated}: RoPE here turns whole heads"
            )));
        }
        Ok(())
    }

    /// The keys rope_theta and rope_scaling, or rope_parameters, which has both since
    /// transformers 5.
    fn rope(&self) -> Result<Rope, BadInput> {
        let both = self.given("rope_parameters").map(Config);
        let theta = match &both {
            Some(both) if both.given("rope_theta").is_some() => both.number("rope_theta", 0.0)?,
            _ => self.number("rope_theta", 10_000.0)?,
        };
        let Some(scaling) = both.or_else(|| self.given("rope_scaling").map(Config)) else {
            return Ok(Rope { theta, scaling: None });
        };
        let kind = scaling
            .text("rope_type")
            .or_else(|| scaling.text("type"))
            .unwrap_or_else(|| "default".into());
        match kind.as_str() {
            "default" => Ok(Rope { theta, scaling: None }),
            "llama3" => {
                let number = |key: &str| match scaling.number(key, f64::NAN)? {
                    number if number > 0.0 => Ok(number),
                    _ => Err(BadInput::new(
                        format!("llama3's RoPE scaling has no {key} above 0"),
                        "correct config.json",
                    )),
                };
                let scaling = RopeScaling {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_block: scaling.size("original_max_position_embeddings")?,
                };
                if scaling.low_freq_factor >= scaling.high_freq_factor {
                    return Err(BadInput::new(
                        "low_freq_factor is not below high_freq_factor",
                        "correct config.json",
                    ));
                }
                Ok(Rope { theta, scaling: Some(scaling) })
            }
            other => Err(unsupported(format!("RoPE's kind is {other}, not default or llama3"))),
        }
    }
}

fn wrong(key: &str, value: &Value, expected: &str) -> BadInput {
    BadInput::new(
        format!("config.json's {key} is {value}, not {expected}"),
        "is this the model's own file?",
    )
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
    use shardlab::plan::PRESETS;

    /// The config of stories260k with one key changed.
    fn with(key: &str, value: Value) -> Result<ModelShape, BadInput> {
        let mut config: Value =
            serde_json::from_str(&to_config(&ModelShape::preset("stories260k").unwrap()).unwrap())
                .unwrap();
        config[key] = value;
        from_config(&config.to_string())
    }

    #[test]
    fn every_preset_is_read_as_it_was_written() {
        for (name, shape) in PRESETS {
            assert!(check_shape(shape).is_ok(), "{name}");
            assert_eq!(from_config(&to_config(shape).unwrap()).unwrap(), *shape, "{name}");
        }
    }

    #[test]
    fn other_arithmetic_is_refused_by_name() {
        for (key, value, says) in [
            ("model_type", json!("qwen2"), "model_type is qwen2"),
            ("hidden_act", json!("gelu"), "hidden_act is gelu"),
            ("attention_bias", json!(true), "attention_bias is true"),
            ("mlp_bias", json!(true), "mlp_bias is true"),
            ("sliding_window", json!(4096), "sliding_window is 4096"),
            ("head_dim", json!(128), "head_dim is 128, not 64 / 8 heads"),
            (
                "rope_scaling",
                json!({"type": "linear", "factor": 2.0}),
                "RoPE's kind is linear",
            ),
            (
                "rope_scaling",
                json!({"rope_type": "llama3", "factor": 2.0}),
                "no low_freq_factor above 0",
            ),
            ("quantization_config", json!({"bits": 4}), "quantization_config"),
            ("partial_rotary_factor", json!(0.5), "partial_rotary_factor is 0.5"),
            ("num_key_value_heads", json!(3), "8 query heads cannot share 3"),
            ("num_attention_heads", json!(7), "does not give 7 heads an even width"),
            ("hidden_size", json!("64"), "hidden_size is \"64\", not a whole number"),
            ("num_hidden_layers", json!(0), "1 to 2^30"),
            ("vocab_size", Value::Null, "config.json has no vocab_size"),
        ] {
            let error = with(key, value).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("help:"), "{error}");
        }
        let error = from_config("{").unwrap_err().to_string();
        assert!(error.contains("config.json is not JSON"), "{error}");
    }

    fn extra(shape: ModelShape) -> LlamaExtra {
        *shape.llama().unwrap()
    }

    /// Missing keys have transformers' defaults, and its version 5 has RoPE's keys in one place.
    #[test]
    fn defaults_and_new_keys() {
        assert_eq!(with("num_key_value_heads", Value::Null).unwrap().kv_heads(), 8);
        assert!(!with("tie_word_embeddings", Value::Null).unwrap().tied());
        assert_eq!(extra(with("rms_norm_eps", Value::Null).unwrap()).norm_eps, 1e-6);
        let rope = json!({"rope_type": "default", "rope_theta": 5000.0});
        assert_eq!(
            extra(with("rope_parameters", rope).unwrap()).rope,
            Rope { theta: 5000.0, scaling: None }
        );
    }
}
