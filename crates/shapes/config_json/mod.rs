//! Hugging Face's config.json: the file with a model's numbers.
//!
//! [`planned`] reads what a plan counts, of any family that is known here. [`llama`] reads a model
//! that is computed with, and refuses keys that would change its arithmetic. Keys and defaults are
//! those of transformers 5.23. Keys that are neither read nor known to change nothing are named.
//!
//! Reading order: `mod.rs`, `families.rs` (the table of families, and how a file is read by
//! it), `keys.rs` (the lists of keys, and their kinds), `strangers.rs` (files and families that are
//! something else).

mod families;
mod keys;
mod strangers;

pub use keys::{Keys, json, some};
pub use strangers::{head, nested, towers};

use crate::error::BadInput;
use crate::model::{Family, LlamaExtra, ModelShape, Rope, RopeScaling};
use serde_json::{Value, json};

/// The model of a config.json, and what to say of it beside its numbers.
pub struct Described {
    pub shape: ModelShape,
    pub notes: Vec<String>,
    /// Why the shape's longest sequence is a default, if it is one.
    pub no_length: Option<String>,
}

/// The model that a config.json describes, to plan with: its parameters, its widths, its heads.
/// What changes none of them, such as RoPE's scaling, is not asked. Of a model that sees or hears
/// it is the language model.
///
/// # Errors
/// If the text is not JSON, is a different file's, lacks a key, describes a family that is not
/// known, or its numbers do not fit together.
pub fn planned(json: &str) -> Result<Described, BadInput> {
    let all = read(json)?;
    let keys = table(&all)?;
    let Some(kind) = keys.text("model_type")? else {
        let error = strangers::without_a_family(&keys);
        let help = match strangers::llama_of_its_widths(&keys, false) {
            Some(flags) => format!("{}; or {flags}", error.help),
            None => error.help,
        };
        return Err(BadInput::new(error.what, help));
    };
    let nested = strangers::nested(&keys).filter(|_| !keys.has_widths());
    let (inner_kind, inner) = match nested {
        Some((_, inner)) => (inner.text("model_type")?.unwrap_or(kind), inner),
        None => (kind, keys),
    };
    let outer_ties = keys.flag("tie_word_embeddings").unwrap_or(false);
    let Some(family) = families::named(inner_kind) else {
        let traits = strangers::traits(&keys);
        let of_text = match nested {
            Some((table, _)) => format!(", its {table}'s {inner_kind}"),
            None => String::new(),
        };
        let what =
            format!("config.json's model_type is {kind}{of_text}, which is not known here{traits}");
        let by_hand = strangers::by_hand(&inner, outer_ties);
        let help = if traits.is_empty() {
            let names = families::names().join(", ");
            format!("{by_hand}; families that can be read are {names}")
        } else {
            format!("plans here are of dense decoders; {by_hand}")
        };
        return Err(BadInput::new(what, help));
    };
    let mut filled = family.filled(&inner, nested.is_some());
    let tied = "tie_word_embeddings";
    if let (Some(value), None) = (keys.get(tied), inner.get(tied)) {
        filled.insert(tied.into(), value.clone());
    }
    let read = described(family, inner_kind, &Keys(&filled));
    let mut described = read.map_err(|error| match error.help.as_str() {
        "" => BadInput::new(error.what, strangers::by_hand(&inner, outer_ties)),
        _ => error,
    })?;
    let (headless, about_head) = strangers::head(&keys);
    if let Family::Dense(dense) = &mut described.shape.family {
        dense.headless = headless;
        dense.tied &= !headless;
        dense.ends[1] *= usize::from(!headless);
    }
    let towers = strangers::towers(&keys);
    if nested.is_some() || !towers.is_empty() {
        let of_text = nested.map_or(String::new(), |(table, _)| format!(" ({table})"));
        described
            .notes
            .push(format!("of this {kind} the language model is planned{of_text}{towers}"));
    }
    let known = |key: &str| Keys::is_of_a_plan(key) || family.knows(key);
    described.notes.extend(inner.unread(known));
    described.notes.extend(about_head);
    described.notes.extend(keys.quantised());
    Ok(described)
}

/// The Llama that a config.json describes, to compute with.
///
/// # Errors
/// As [`planned`], and if it is no Llama or computes other than this library's.
pub fn llama(json: &str) -> Result<Described, BadInput> {
    let all = read(json)?;
    let keys = table(&all)?;
    let kind = keys.text("model_type")?.ok_or_else(|| strangers::without_a_family(&keys))?;
    let family = families::named("llama").filter(|_| kind == "llama").ok_or_else(|| {
        unsupported(format!("model_type is {kind}, not llama{}", strangers::traits(&keys)))
    })?;
    let read = described(family, kind, &Keys(&family.filled(&keys, false)));
    let mut described = read.map_err(|error| match error.help.as_str() {
        "" => unsupported(error.what),
        _ => error,
    })?;
    keys.size("max_position_embeddings")?;
    described.notes.extend(keys.unread(|_| false));
    described.notes.extend(described.no_length.take());
    let planned = described.shape;
    let dense = planned.dense();
    let activation = keys.text("hidden_act")?.unwrap_or("silu");
    let partial = keys.number("partial_rotary_factor")?;
    let causal = keys.get("is_causal").is_none() || keys.flag("is_causal")?;
    for (differs, key) in [
        (!["silu", "swish"].contains(&activation), "hidden_act"),
        (dense.qkv_bias, "attention_bias"),
        (dense.mlp_bias, "mlp_bias"),
        (keys.get("sliding_window").is_some(), "sliding_window"),
        (keys.get("quantization_config").is_some(), "quantization_config"),
        (keys.get("compression_config").is_some(), "compression_config"),
        (keys.get("quantization").is_some(), "quantization"),
        (partial.is_some_and(|part| part != 1.0), "partial_rotary_factor"),
        (!causal, "is_causal"),
    ] {
        if differs {
            return Err(unsupported(format!("its {key} changes what it computes")));
        }
    }
    if planned.q_width() != planned.embd {
        return Err(unsupported(format!("its head_dim: {}", wide_heads(&planned, dense.head))));
    }
    let family = Family::Llama(LlamaExtra {
        kv_heads: dense.kv_heads,
        ffn: dense.ffn,
        rope: keys.rope(&mut described.notes)?,
        norm_eps: keys.number("rms_norm_eps")?.unwrap_or(1e-6),
        tied: dense.tied,
    });
    described.shape = ModelShape { family, ..planned };
    check(&described.shape)?;
    Ok(described)
}

/// Heads that are not as wide together as the model.
pub fn wide_heads(shape: &ModelShape, head: usize) -> String {
    let ModelShape { heads, embd, .. } = *shape;
    format!("{heads} heads of {head} in a width of {embd} are not supported")
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

/// The longest sequence that a model may have.
const LONGEST: usize = 1 << 24;

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
    within("positions", shape.block, LONGEST)?;
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

/// Reads the text as JSON.
fn read(text: &str) -> Result<Value, BadInput> {
    keys::json(text).map_err(|error| incomplete(format!("config.json is not JSON: {error}")))
}

fn table(all: &Value) -> Result<Keys<'_>, BadInput> {
    let table = all.as_object().map(Keys);
    table.ok_or_else(|| incomplete("this is no config.json: its JSON is not a table of keys"))
}

/// What a file of a family describes. Experts are counted in none.
fn described(family: &families::Family, kind: &str, keys: &Keys) -> Result<Described, BadInput> {
    let mut described = family.read(keys)?;
    check(&described.shape)?;
    keys.ensure_an_entry_a_layer(described.shape.layers)?;
    described.notes.extend(keys.experts().map(|(key, number)| {
        format!(
            "config.json has {number} experts ({key}), and a {kind} none: each layer has one MLP \
             here"
        )
    }));
    Ok(described)
}

impl Keys<'_> {
    /// Whether the table itself has a model's width.
    fn has_widths(&self) -> bool {
        self.get(self.spelled("hidden_size")).is_some()
    }

    /// Refuses a list with an entry for each layer that has another length. transformers 5.24.0
    /// refuses `layer_types` so.
    fn ensure_an_entry_a_layer(&self, layers: usize) -> Result<(), BadInput> {
        const LISTS: [&str; 5] = [
            "layer_types",
            "mlp_layer_types",
            "layers_block_type",
            "no_rope_layers",
            "attention_layers",
        ];
        for key in LISTS {
            if let Some(Value::Array(list)) = self.get(key)
                && list.len() != layers
            {
                let what =
                    format!("config.json's {key} has {} entries for {layers} layers", list.len());
                let help =
                    "one of the two is another model's: an entry is for each of num_hidden_layers";
                return Err(BadInput::new(what, help));
            }
        }
        Ok(())
    }

    /// A note, if the file is a quantised model's.
    fn quantised(&self) -> Option<String> {
        let key = self.first(&["quantization_config", "compression_config", "quantization"])?;
        let how = self.table(key).ok().flatten();
        let how = how.and_then(|how| how.text("quant_method").ok().flatten());
        let how = how.map_or(String::new(), |how| format!(" by {how}"));
        Some(format!(
            "this model is quantised{how} ({key}), and a plan trains all parameters, at 16 or 18 \
             bytes each (--bytes)"
        ))
    }

    /// RoPE, by the one table that has it. `rope_scaling` goes before `rope_parameters`.
    fn rope(&self, notes: &mut Vec<String>) -> Result<Rope, BadInput> {
        let plain = Rope {
            theta: self.number("rope_theta")?.unwrap_or(10_000.0),
            scaling: None,
        };
        let mut found: Option<Rope> = None;
        for key in ["rope_scaling", "rope_parameters"] {
            let Some(keys) = self.table(key)?.filter(|keys| !keys.0.is_empty()) else {
                continue;
            };
            let rope = keys.rope_of_table(key, plain, notes)?;
            if found.is_some_and(|found| found != rope) {
                let what = "rope_scaling and rope_parameters contradict each other";
                return Err(unsupported(what.into()));
            }
            found = Some(rope);
        }
        Ok(found.unwrap_or(plain))
    }

    fn rope_of_table(
        &self,
        table: &str,
        plain: Rope,
        notes: &mut Vec<String>,
    ) -> Result<Rope, BadInput> {
        let theta = self.number("rope_theta")?.unwrap_or(plain.theta);
        let kind = match self.text("rope_type")? {
            None => self.text("type")?,
            given => given,
        };
        // What scales without a kind is the older programs' linear scaling.
        let factor = self.number("factor")?.filter(|factor| *factor != 1.0);
        let scaling = match (kind, factor) {
            (None, Some(_)) => {
                return Err(unsupported(format!("its {table} has a factor, and no rope_type")));
            }
            (None | Some("default"), _) => None,
            (Some("llama3"), _) => {
                let number = |key: &str| {
                    let lacks = || incomplete(format!("config.json: {table} has no {key}"));
                    self.number(key)?.ok_or_else(lacks)
                };
                Some(RopeScaling {
                    factor: number("factor")?,
                    low_freq_factor: number("low_freq_factor")?,
                    high_freq_factor: number("high_freq_factor")?,
                    original_block: self.needed("original_max_position_embeddings")?,
                })
            }
            (Some(other), _) => {
                return Err(unsupported(format!("RoPE's kind is {other}, not default or llama3")));
            }
        };
        if self.number("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
            let what = format!("its {table}.partial_rotary_factor changes what it computes");
            return Err(unsupported(what));
        }
        let known = [
            "rope_theta",
            "rope_type",
            "type",
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
            "partial_rotary_factor",
        ];
        let unread = self.0.keys().filter(|key| !known.contains(&key.as_str()));
        let unread: Vec<&str> = unread.map(String::as_str).collect();
        if !unread.is_empty() {
            notes.push(format!(
                "config.json's {table} has keys that were not read: {}",
                some(&unread)
            ));
        }
        Ok(Rope { theta, scaling })
    }
}

fn incomplete(what: impl Into<String>) -> BadInput {
    BadInput::new(what, "is it the model's own, complete file?")
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

    fn refused(read: Result<Described, BadInput>) -> BadInput {
        read.err().expect("this is refused")
    }

    #[test]
    fn every_preset_is_read_as_it_was_written() {
        for (name, shape) in LLAMAS {
            let config = to_config(shape).unwrap();
            let read = llama(&config).unwrap();
            assert_eq!((read.shape, read.notes), (*shape, Vec::new()), "{name}");
            let read = planned(&config).unwrap();
            assert_eq!((read.shape.dense(), read.notes), (shape.dense(), Vec::new()), "{name}");
        }
    }

    /// Published models of every family, as counts.py has counted them with transformers' own
    /// layers, and the layers that it masks with a window.
    #[test]
    fn published_models_have_the_parameters_of_their_layers() {
        let counted: Value = serde_json::from_str(include_str!("counted.json")).unwrap();
        let models = counted["models"].as_array().unwrap();
        for family in families::names() {
            let of_it = |config: &Value| {
                config["model_type"] == family || config["text_config"]["model_type"] == family
            };
            assert!(models.iter().any(|model| of_it(&model["config"])), "{family}");
        }
        for model in models {
            let read = planned(&model["config"].to_string()).unwrap();
            let is = (read.shape.parameters(), read.shape.dense().windows[0] as u64);
            let counted = |key: &str| model[key].as_u64().unwrap();
            assert_eq!(is, (counted("parameters"), counted("windowed")), "{}", model["name"]);
            let numel = |(_, dims): &(String, Vec<usize>)| dims.iter().product::<usize>() as u64;
            assert_eq!(read.shape.named().iter().map(numel).sum::<u64>(), is.0);
            let nested = model["config"].get("text_config").is_some();
            assert_eq!(read.notes.len(), usize::from(nested), "{:?}", read.notes);
        }
    }

    /// Which layers have a window is said by a list, a pattern, a number, or by nothing.
    #[test]
    fn windows_are_the_familys_or_the_files() {
        for (kind, keys, windows) in [
            ("mistral", json!({"sliding_window": 4096}), [8, 4096]),
            ("mistral", json!({"sliding_window": null}), [0, 0]),
            ("mistral", json!({}), [0, 0]),
            (
                "mistral",
                json!({"sliding_window": 64, "layer_types": [
                    "sliding_attention", "full_attention", "full_attention", "full_attention",
                    "sliding_attention", "full_attention", "full_attention", "full_attention",
                ]}),
                [2, 64],
            ),
            ("llama", json!({"sliding_window": 4096}), [0, 0]),
            ("qwen2", json!({"sliding_window": 4096, "max_window_layers": 6}), [0, 0]),
            (
                "qwen2",
                json!({"sliding_window": 64, "max_window_layers": 6, "use_sliding_window": true}),
                [2, 64],
            ),
            ("gemma2", json!({}), [4, 4096]),
            ("gemma2", json!({"sliding_window": null}), [0, 0]),
            ("gemma3_text", json!({"sliding_window": 512}), [7, 512]),
            (
                "gemma3_text",
                json!({"sliding_window": 512, "sliding_window_pattern": 2}),
                [4, 512],
            ),
            ("exaone4", json!({"sliding_window_pattern": "LG"}), [4, 4096]),
            ("olmo3", json!({}), [6, 4096]),
        ] {
            let mut config = json!({
                "model_type": kind, "num_hidden_layers": 8, "hidden_size": 64, "head_dim": 8,
                "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 128,
                "vocab_size": 1000, "max_position_embeddings": 4096,
            });
            config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
            let read = planned(&config.to_string()).unwrap();
            assert_eq!(read.shape.dense().windows, windows, "{kind} {keys}");
            assert_eq!(read.notes, Vec::<String>::new());
        }
        let strange = r#"{"model_type": "mistral", "num_hidden_layers": 8, "hidden_size": 64,
            "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 128,
            "vocab_size": 1000, "max_position_embeddings": 4096, "sliding_window": "4k"}"#;
        let notes = planned(strange).unwrap().notes;
        assert!(notes.len() == 1 && notes[0].contains("taken to see all positions"), "{notes:?}");
    }

    /// A model that sees is its language model; what the inner table leaves out is its class's, and
    /// whether the head is tied may be said by either table.
    #[test]
    fn the_language_model_of_one_that_sees_is_planned() {
        let of = |inner: Value, more: Value| {
            let mut config = json!({
                "model_type": "mistral3", "text_config": inner, "vision_config": {"a": 1},
            });
            config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            planned(&config.to_string())
        };
        let inner = json!({"model_type": "ministral3", "hidden_size": 3072, "max_position_embeddings": 4096});
        let read = of(inner.clone(), json!({})).unwrap();
        assert!(!read.shape.tied() && read.shape.layers == 34);
        assert_eq!(
            read.notes,
            [
                "of this mistral3 the language model is planned (text_config), without the tower of \
              its vision_config"
            ]
        );
        assert!(of(inner.clone(), json!({"tie_word_embeddings": true})).unwrap().shape.tied());
        let mut tied = inner.clone();
        tied["tie_word_embeddings"] = json!(true);
        let says_no = json!({"tie_word_embeddings": false});
        assert!(of(tied, says_no).unwrap().shape.tied());
        // Older files of such models have its numbers beside the tower's.
        let flat = json!({
            "model_type": "qwen2_vl", "num_hidden_layers": 8, "hidden_size": 64,
            "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 128,
            "vocab_size": 1000, "max_position_embeddings": 4096, "vision_config": {"a": 1},
            "vision_start_token_id": 7,
        });
        let says = "of this qwen2_vl the language model is planned, without the tower of its \
                    vision_config";
        assert_eq!(planned(&flat.to_string()).unwrap().notes, [says]);
        let quantised = of(inner, json!({"quantization_config": {"quant_method": "fp8"}})).unwrap();
        assert!(quantised.notes[1].contains("quantised by fp8"), "{:?}", quantised.notes);
        let strange = json!({"model_type": "clip_text_model", "hidden_size": 512});
        let error = refused(of(strange, json!({})));
        assert!(
            error.what.contains("mistral3, its text_config's clip_text_model, which"),
            "{error}"
        );
        let experts = json!({"model_type": "deepseek_v3", "n_routed_experts": 64});
        assert!(refused(of(experts, json!({}))).what.contains("64 experts"));
    }

    /// The keys that each family's files usually have, beside its numbers, are no strangers.
    #[test]
    fn usual_keys_of_a_family_are_known() {
        let counted: Value = serde_json::from_str(include_str!("counted.json")).unwrap();
        for (kind, usual) in [
            (
                "gpt2",
                "activation_function attn_pdrop embd_pdrop layer_norm_epsilon n_ctx resid_pdrop \
                 summary_activation summary_first_dropout summary_proj_to_labels summary_type \
                 summary_use_proj task_specific_params reorder_and_upcast_attn \
                 scale_attn_by_inverse_layer_idx scale_attn_weights",
            ),
            (
                "gpt_neox",
                "hidden_act layer_norm_eps rotary_emb_base rotary_pct attention_dropout",
            ),
            (
                "bloom",
                "apply_residual_connection_post_layernorm attention_softmax_in_fp32 \
                 bias_dropout_fusion masked_softmax_fusion offset_alibi pretraining_tp \
                 seq_length skip_bias_add skip_bias_add_qkv slow_but_exact hidden_dropout",
            ),
            (
                "falcon",
                "alibi auto_map hidden_dropout attention_dropout layer_norm_epsilon rope_theta",
            ),
            (
                "opt",
                "activation_dropout activation_function attention_dropout dropout init_std \
                 layer_norm_elementwise_affine layerdrop prefix",
            ),
            (
                "phi3",
                "attention_dropout auto_map embd_pdrop full_attn_mod interpolate_factor resid_pdrop \
                 original_max_position_embeddings partial_rotary_factor rope_scaling",
            ),
            (
                "gemma2",
                "attn_logit_softcapping final_logit_softcapping hidden_activation \
                 query_pre_attn_scalar cache_implementation",
            ),
            (
                "gemma3_text",
                "attn_logit_softcapping final_logit_softcapping hidden_activation \
                 query_pre_attn_scalar cache_implementation rope_local_base_freq",
            ),
            ("olmo3", "hidden_act rope_scaling layer_norm_eps"),
            (
                "granite",
                "attention_multiplier embedding_multiplier logits_scaling residual_multiplier",
            ),
            (
                "smollm3",
                "no_rope_layer_interval no_rope_layers max_window_layers pretraining_tp",
            ),
            ("cohere", "layer_norm_eps logit_scale model_max_length"),
            (
                "cohere2",
                "cache_implementation layer_norm_eps logit_scale order_of_interleaved_layers \
                 position_embedding_type rotary_pct use_embedding_sharing use_gated_activation \
                 use_parallel_block use_parallel_embedding",
            ),
            (
                "starcoder2",
                "activation_function embedding_dropout mlp_type norm_epsilon norm_type \
                 residual_dropout",
            ),
            (
                "stablelm",
                "hidden_dropout layer_norm_eps norm_eps partial_rotary_factor rope_pct",
            ),
            ("glm4", "partial_rotary_factor rope_theta"),
            ("nemotron", "norm_eps partial_rotary_factor rope_percent rope_percentage"),
            ("exaone", "activation_function auto_map embed_dropout layer_norm_epsilon"),
            ("exaone4", "rope_scaling"),
        ] {
            let models = counted["models"].as_array().unwrap();
            let model = models.iter().rfind(|model| model["config"]["model_type"] == kind).unwrap();
            let plain = planned(&model["config"].to_string()).unwrap();
            let mut config = model["config"].clone();
            for key in usual.split_whitespace() {
                config[key] = json!(0.5);
            }
            let read = planned(&config.to_string()).unwrap();
            assert_eq!(read.notes, Vec::<String>::new(), "{kind}");
            assert_eq!(read.shape.parameters(), plain.shape.parameters(), "{kind}");
            config["strange"] = json!(0.5);
            let notes = planned(&config.to_string()).unwrap().notes;
            assert!(notes.len() == 1 && notes[0].ends_with("not read: strange"), "{notes:?}");
        }
    }

    #[test]
    fn other_arithmetic_is_refused_by_name() {
        for (key, value, says) in [
            ("model_type", json!("qwen2"), "model_type is qwen2, not llama"),
            ("model_type", json!("mixtral"), "model_type is mixtral, not llama"),
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
                "config.json: rope_scaling has no low_freq_factor",
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
            ("hidden_size", json!("64"), "hidden_size is \"64\", not a whole number"),
            ("hidden_size", json!(64.0), "hidden_size is 64.0, not a whole number"),
            ("rms_norm_eps", json!("1e-5"), "rms_norm_eps is \"1e-5\", not a number"),
            ("rope_scaling", json!("linear"), "rope_scaling is \"linear\", not a table"),
            (
                "rope_scaling",
                json!({"factor": 2.0}),
                "rope_scaling has a factor, and no rope_type",
            ),
            (
                "rope_parameters",
                json!({"rope_theta": 10_000.0, "partial_rotary_factor": 0.5}),
                "its rope_parameters.partial_rotary_factor",
            ),
            ("hidden_act", json!(["silu"]), "hidden_act is a list, not a text"),
            ("max_position_embeddings", json!([1]), "max_position_embeddings is a list"),
            ("tie_word_embeddings", json!("true"), "\"true\", not true or false"),
            ("is_causal", json!(false), "its is_causal"),
            ("quantization", json!({"bits": 4}), "its quantization changes"),
            ("num_hidden_layers", json!(0), "0 layers, not 1 to 10000"),
            ("num_attention_heads", json!(0), "0 heads cannot share"),
            ("vocab_size", Value::Null, "config.json has no vocab_size"),
            ("head_dim", json!(16), "8 heads of 16 in a width of 64 are not supported"),
        ] {
            let error = refused(llama(&with(key, value))).to_string();
            assert!(error.contains(says) && error.contains("help:"), "{error}");
        }
        let error = refused(llama("{")).to_string();
        assert!(error.contains("config.json is not JSON"), "{error}");
        let qwen = with("num_key_value_heads", Value::Null).replace("\"llama\"", "\"qwen2\"");
        assert!(refused(planned(&qwen)).what.contains("no num_key_value_heads"));
    }

    /// Missing keys have transformers' defaults, and its version 5 has RoPE's keys in one place.
    #[test]
    fn defaults_and_new_keys() {
        let read = |key, value| llama(&with(key, value)).unwrap().shape;
        assert_eq!(read("num_key_value_heads", Value::Null).kv_heads(), 8);
        assert!(!read("tie_word_embeddings", Value::Null).tied());
        assert_eq!(read("rms_norm_eps", Value::Null).llama().unwrap().norm_eps, 1e-6);
        let rope = json!({"rope_type": "default", "rope_theta": 5000.0});
        let shape = read("rope_parameters", rope);
        assert_eq!(shape.llama().unwrap().rope, Rope { theta: 5000.0, scaling: None });
    }

    /// A file that says nothing of its longest sequence is its family's; the first Llamas had a
    /// different key. A plan needs no more of it than that.
    #[test]
    fn a_length_that_is_not_said_is_the_familys() {
        let without = with("max_position_embeddings", Value::Null);
        let read = llama(&without).unwrap();
        assert_eq!((read.shape.block, read.notes.len()), (2048, 1));
        assert!(read.notes[0].contains("no max_position_embeddings"), "{}", read.notes[0]);
        let older = without.replacen('{', "{\"max_sequence_length\": 1024,", 1);
        let read = llama(&older).unwrap();
        assert_eq!((read.shape.block, read.notes), (1024, Vec::new()));
        for (value, says) in [
            (json!("4096"), "max_position_embeddings is \"4096\", not a whole number"),
            (
                json!(0),
                "max_position_embeddings is 0: its longest sequence is taken to have 2,048",
            ),
            (json!(1u64 << 40), "max_position_embeddings is 1099511627776"),
        ] {
            let read = planned(&with("max_position_embeddings", value)).unwrap();
            let why = read.no_length.unwrap();
            assert!(why.contains(says) && read.shape.block == 2048, "{why}");
            assert!(read.notes.is_empty(), "{:?}", read.notes);
        }
    }

    /// What changes no count cannot refuse a plan, and what Python writes is read.
    #[test]
    fn a_plan_asks_only_what_it_counts() {
        let plain = planned(&with("x", Value::Null)).unwrap();
        for (key, value) in [
            ("rope_scaling", json!("linear")),
            ("rope_theta", json!([1])),
            ("hidden_act", json!(["silu"])),
            ("rms_norm_eps", json!("1e-5")),
            ("partial_rotary_factor", json!("half")),
            ("attention_bias", json!(0)),
            ("tie_word_embeddings", json!(1)),
            ("sliding_window", json!(true)),
        ] {
            let read = planned(&with(key, value)).unwrap();
            assert_eq!((read.shape, read.notes), (plain.shape, Vec::new()), "{key}");
        }
        let infinite = with("x", json!("marker"));
        for word in ["Infinity", "-Infinity", "NaN"] {
            let read = planned(&infinite.replace("\"marker\"", word)).unwrap();
            assert_eq!(read.shape, plain.shape);
            let read = llama(&infinite.replace("\"marker\"", word)).unwrap();
            assert_eq!(
                read.notes,
                ["config.json has keys that are not known here and were not read: x"]
            );
            let eps = with("rms_norm_eps", json!("marker")).replace("\"marker\"", word);
            let error = refused(llama(&eps)).what;
            assert!(error.contains(&format!("rms_norm_eps is {word}, not a number")), "{error}");
        }
        let twice = with("x", Value::Null).replacen('{', "{\"rope_theta\": 5.0,", 1);
        assert_eq!(llama(&twice).unwrap().shape.llama().unwrap().rope.theta, 10_000.0);
    }

    /// A key in no list is named once, and one with the value that it usually has is not.
    #[test]
    fn unknown_keys_are_named_once() {
        for (key, value, says) in [
            ("logits_scaling", json!(16.0), Some("not read: logits_scaling")),
            ("logits_scaling", json!(1.0), None),
            ("final_logit_softcapping", json!(null), None),
            ("attn_temperature", json!(false), Some("not read: attn_temperature")),
            ("use_mrope", json!(false), None),
            ("use_mrope", json!(true), Some("not read: use_mrope")),
            ("auto_map", json!({"AutoModel": "a.B"}), Some("not read: auto_map")),
            ("auto_map", json!({}), None),
            ("pretraining_tp", json!(2), None),
            (
                "num_local_experts",
                json!(8),
                Some("config.json has 8 experts (num_local_experts)"),
            ),
            ("num_local_experts", json!(1), None),
            (
                "rope_scaling",
                json!({"rope_type": "default", "mscale": 0.7}),
                Some("config.json's rope_scaling has keys that were not read: mscale"),
            ),
        ] {
            let notes = llama(&with(key, value.clone())).unwrap().notes;
            let is_said = says.is_none_or(|says| notes.len() == 1 && notes[0].contains(says));
            assert!(is_said && notes.is_empty() == says.is_none(), "{key} {value}: {notes:?}");
        }
        let five = with("x", json!(1)).replacen('{', r#"{"a": 1, "b": 2, "c": "", "d": [1],"#, 1);
        let notes = planned(&five).unwrap().notes;
        assert!(
            notes.len() == 1 && notes[0].ends_with("not read: a, b, c and 2 more"),
            "{notes:?}"
        );
    }

    /// Files of the hub say much that changes nothing, and get no note.
    #[test]
    fn a_good_file_gets_no_note() {
        let config = with("architectures", json!(["LlamaForCausalLM"]));
        let more = r#"{"_name_or_path": "x", "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": null, "dtype": "bfloat16",
            "torch_dtype": "bfloat16", "initializer_range": 0.041666666666666664, "use_cache": true,
            "is_llama_config": true, "rope_interleaved": false, "pretraining_tp": 1,
            "mlp_bias": false,
            "transformers.js_config": {"dtype": "q4"}, "transformers_version": "5.0.0",
            "use_sliding_window": false, "max_window_layers": 28,
            "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention", "full_attention"],
            "use_mrope": false, "unsloth_fixed": true, "id2label": {"0": "a"}, "num_labels": 1,
            "tokenizer_class": "LlamaTokenizer", "head_dim": null, "sliding_window": null,"#;
        let config = config.replacen('{', more, 1);
        for read in [planned(&config), llama(&config)] {
            assert_eq!(read.unwrap().notes, Vec::<String>::new());
        }
    }

    /// Both of RoPE's tables may be there, with one meaning.
    #[test]
    fn two_tables_of_rope_must_agree() {
        let rope = json!({"rope_type": "default", "rope_theta": 5000.0});
        let mut config: Value = serde_json::from_str(&with("rope_parameters", rope)).unwrap();
        config["rope_scaling"] = json!({"type": "default", "rope_theta": 5000.0});
        let read = llama(&config.to_string()).unwrap();
        assert_eq!(read.shape.llama().unwrap().rope.theta, 5000.0);
        config["rope_scaling"] = json!({"type": "default"});
        let error = refused(llama(&config.to_string())).what;
        assert!(error.contains("rope_scaling and rope_parameters contradict"), "{error}");
    }

    /// A model without a head over the tokens has its parameters, FLOPs and names without one.
    #[test]
    fn a_model_without_a_head_is_counted_without() {
        let of = |architecture: Value| {
            let mut config: Value =
                serde_json::from_str(&with("architectures", architecture)).unwrap();
            config["tie_word_embeddings"] = json!(false);
            planned(&config.to_string()).unwrap()
        };
        let whole = of(json!(["LlamaForCausalLM"]));
        assert_eq!(whole.notes, Vec::<String>::new());
        for (name, says) in [
            ("LlamaModel", "LlamaModel has no head over the vocabulary, and none is counted"),
            ("MistralModel", "no head"),
            ("LlamaForSequenceClassification", "its own small head is not counted"),
            ("LlamaForTokenClassification", "its own small head"),
            ("Qwen2ForRewardModel", "its own small head"),
            ("LlamaForCausalLMEagle3", "a draft beside a larger model"),
            ("EagleLlamaForCausalLM", "a draft beside a larger model"),
        ] {
            let read = of(json!([name]));
            assert!(read.notes.len() == 1 && read.notes[0].contains(says), "{:?}", read.notes);
            let shape = read.shape;
            let table = shape.table();
            assert_eq!(shape.parameters() + table, whole.shape.parameters(), "{name}");
            let flops = whole.shape.matmul_flops_per_token() - shape.matmul_flops_per_token();
            assert_eq!((flops, shape.logits(), shape.head_named()), (6 * table, 0, None));
        }
        for name in [json!("LlamaForCausalLM"), json!(["LlavaForConditionalGeneration"]), json!([])]
        {
            assert_eq!(of(name).shape, whole.shape);
        }
        let strange = of(json!(["Strange"]));
        assert_eq!(strange.shape, whole.shape);
        assert!(strange.notes[0].contains("Strange, which is not known here"));
        // To compute with, the weights say whether there is a head.
        let read = llama(&with("architectures", json!(["LlamaModel"]))).unwrap();
        assert_eq!((read.shape.tied(), read.notes), (true, Vec::new()));
    }

    #[test]
    fn a_quantised_model_is_said_to_be_one() {
        for (key, value, says) in [
            (
                "quantization_config",
                json!({"quant_method": "gptq", "bits": 4}),
                "by gptq (quant",
            ),
            ("quantization_config", json!(7), "quantised (quantization_config)"),
            ("quantization", json!({"bits": 4}), "quantised (quantization)"),
            ("compression_config", json!({"format": "x"}), "quantised (compression_config)"),
        ] {
            let notes = planned(&with(key, value)).unwrap().notes;
            assert!(notes.len() == 1 && notes[0].contains(says), "{notes:?}");
        }
    }

    /// Each file is refused as what it is, with something to give instead.
    #[test]
    fn other_files_and_families_are_named() {
        let widths = r#""num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40"#;
        for (text, what, help) in [
            (
                r#"{"peft_type": "LORA", "r": 8}"#,
                "an adapter's settings",
                "base_model_name_or_path",
            ),
            (
                r#"{"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8}"#,
                "Meta's own format (dim, n_layers)",
                "of its widths: --layers 32 --embd 4096 --heads 32 --kv-heads 8",
            ),
            (r#"{"tokenizer_class": "X"}"#, "a tokenizer's settings", "beside it"),
            (r#"{"added_tokens": [], "model": {}}"#, "a tokenizer's file", "beside it"),
            (
                r#"{"weight_map": {}, "metadata": {}}"#,
                "index of a model's weights",
                "beside it",
            ),
            (
                r#"{"zero_optimization": {"stage": 1}}"#,
                "DeepSpeed's settings",
                "that it trains",
            ),
            (r#"{"eos_token_id": 2}"#, "settings of generation", "beside it"),
            ("{}", "it has no model_type", "complete file"),
            ("[1]", "its JSON is not a table of keys", "complete file"),
            (r#"{"model_type": 7}"#, "model_type is 7, not a text", "complete file"),
            (
                r#"{"model_type": "qwen3_moe", "num_experts": 128}"#,
                "qwen3_moe, which is not known here: it has 128 experts in a layer (num_experts)",
                "is another model",
            ),
            (
                r#"{"model_type": "x", "text_config": {"n_routed_experts": 64}}"#,
                "64 experts in a layer (n_routed_experts)",
                "and none is offered",
            ),
            (
                r#"{"model_type": "mamba2", "state_size": 128}"#,
                "state-space layers (state_size)",
                "plans here are of dense decoders",
            ),
            (
                &format!(r#"{{"model_type": "phi9", {widths}}}"#),
                "model_type is phi9, which is not known here",
                "describe a Llama of its widths: --layers 40 --embd 5120 --heads 40",
            ),
        ] {
            let error = refused(planned(text));
            assert!(error.what.contains(what) && error.help.contains(help), "{text}: {error}");
        }
    }
}
