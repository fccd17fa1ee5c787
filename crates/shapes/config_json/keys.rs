//! The keys of a config.json: read by name and kind, or known to change nothing, or neither.

use super::incomplete;
use crate::error::BadInput;
use serde_json::{Map, Value};

/// Keys that are read, for a plan or to compute with.
const READ: &str = "
    architectures attention_bias compression_config head_dim hidden_act hidden_size
    intermediate_size is_causal max_position_embeddings max_sequence_length mlp_bias model_type
    num_attention_heads num_hidden_layers num_key_value_heads partial_rotary_factor quantization
    quantization_config rms_norm_eps rope_parameters rope_scaling rope_theta sliding_window
    tie_word_embeddings vocab_size";

/// Numbers that every model has, and how other families spell them.
const SPELLED: [(&str, &[&str]); 9] = [
    ("num_hidden_layers", &["n_layer", "n_layers", "num_layers"]),
    ("hidden_size", &["n_embd", "n_embed", "d_model"]),
    ("num_attention_heads", &["n_head", "n_heads", "num_heads"]),
    ("num_key_value_heads", &["num_kv_heads", "n_head_kv"]),
    ("head_dim", &["kv_channels"]),
    ("intermediate_size", &["n_inner", "ffn_dim", "ffn_hidden_size"]),
    ("vocab_size", &["n_vocab", "padded_vocab_size"]),
    (
        "max_position_embeddings",
        &["n_positions", "seq_length", "max_seq_len", "max_sequence_length", "n_ctx"],
    ),
    ("sliding_window", &["window_size"]),
];

/// Keys that change what a model computes, and no number of a plan: activation functions, scales,
/// rotations, epsilons, rates of dropout, and what other parts than the decoder have.
const CHANGE_NO_COUNT: &str = "
    _sliding_window_pattern activation activation_function apply_residual_connection_post_layernorm
    attention_multiplier attn_logit_softcapping attn_pdrop cache_implementation embd_pdrop
    embed_dropout embedding_dropout embedding_multiplier expansion_ratio final_logit_softcapping
    hidden_activation hidden_dropout image_token_id layer_norm_eps layer_norm_epsilon logit_scale logits_scaling
    max_window_layers no_rope_layer_interval no_rope_layers norm_eps norm_epsilon
    position_embedding_type query_pre_attn_scalar reorder_and_upcast_attn resid_dropout resid_pdrop
    residual_dropout residual_multiplier rope_local_base_freq rope_pct rope_percent rope_percentage
    rotary_pct scale_attn_by_inverse_layer_idx scale_attn_weights sliding_window_pattern
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    use_bidirectional_attention use_sliding_window video_token_id vision_config vision_end_token_id
    vision_start_token_id vision_token_id";

/// Keys that change neither a count nor a result here: a text's first and last tokens (those that
/// end it are read with the tokenizer), how weights are drawn, stored, cached and served, defaults
/// of generation and of training, names. A window is one only with `use_sliding_window`.
const CHANGE_NOTHING: &str = "
    _attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled
    _name_or_path attention_dropout attn_implementation bad_words_ids begin_suppress_tokens
    bos_token_id chunk_size_feed_forward classifier_dropout cls_token_id
    cross_attention_hidden_size decoder_start_token_id diversity_penalty do_sample dtype
    early_stopping encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty
    finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing hidden_dropout
    id2label initializer_range is_decoder is_llama_config keys_to_ignore_at_inference label2id
    layer_types length_penalty max_length max_window_layers min_length model_max_length
    no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences
    original_max_position_embeddings output_attentions output_hidden_states output_scores
    pad_token_id prefix pretraining_tp problem_type pruned_heads remove_invalid_values
    repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p
    torch_dtype torchscript transformers.js_config transformers_version typical_p unk_token_id
    unsloth_fixed unsloth_version use_bfloat16 use_cache use_flash_attention use_flash_attention_2";

/// Keys of other families that are often written out, with the value that changes nothing: false,
/// or 1.
const USUALLY_FALSE: &str = "
    add_cross_attention alibi attention_qkv_bias bias clip_qkv is_encoder_decoder lm_head_bias
    parallel_attn qk_layernorm qkv_bias rope_interleaved use_bias use_mrope use_qk_norm
    use_sliding_window";
const USUALLY_ONE: &str = "
    attention_multiplier embedding_multiplier logit_scale logits_scaling num_experts_per_tok
    residual_multiplier";

/// The keys that hold a number of experts.
const EXPERTS: [&str; 7] = [
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "moe_num_experts",
    "num_moe_experts",
    "num_routed_experts",
    "n_experts",
];

fn lists(list: &str, key: &str) -> bool {
    list.split_whitespace().any(|known| known == key)
}

/// What Python writes for numbers that JSON does not have.
const BARE: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// Reads JSON as Python writes it: infinities and NaN, bare, are read as texts of these names, so
/// that no number is made of them.
///
/// # Errors
/// If it is not JSON otherwise.
pub fn json(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str(text).or_else(|_| serde_json::from_str(&quoted(text)))
}

/// The text with quotes around infinities and NaN.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let bare = BARE.into_iter().find(|word| !in_string && rest.starts_with(word));
        let mut length = bare.map_or(c.len_utf8(), str::len);
        if in_string && c == '\\' {
            // The next character is the string's own, whatever it is.
            length += rest[1..].chars().next().map_or(0, char::len_utf8);
        }
        let (part, after) = rest.split_at(length);
        match bare {
            Some(word) => out += &format!("\"{word}\""),
            None => out += part,
        }
        in_string ^= c == '"';
        rest = after;
    }
    out
}

/// A value in a few words.
pub(super) fn in_words(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a table".into(),
        Value::String(text) if BARE.contains(&text.as_str()) => text.clone(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        other => other.to_string(),
    }
}

/// The keys of a table. What is missing and what is null have the same meaning.
#[derive(Clone, Copy)]
pub struct Keys<'a>(pub &'a Map<String, Value>);

impl<'a> Keys<'a> {
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// A key's value, if it is of the kind that `read` takes.
    fn of_kind<T>(
        &self,
        key: &str,
        kind: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, BadInput> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let wrong = || incomplete(format!("config.json: {key} is {}, not {kind}", in_words(value)));
        read(value).map(Some).ok_or_else(wrong)
    }

    /// How this table spells the key of a number that every model has.
    pub fn spelled<'k>(&self, key: &'k str) -> &'k str {
        let others = SPELLED.into_iter().find(|(usual, _)| *usual == key);
        let (_, others) = others.unwrap_or_default();
        let has = |name: &&'k str| self.get(name).is_some();
        [key].into_iter().chain(others.iter().copied()).find(has).unwrap_or(key)
    }

    pub fn size(&self, key: &str) -> Result<Option<usize>, BadInput> {
        let key = self.spelled(key);
        self.of_kind(key, "a whole number", |value| value.as_u64()?.try_into().ok())
    }

    /// A number that every model has.
    pub fn needed(&self, key: &str) -> Result<usize, BadInput> {
        self.size(key)?.ok_or_else(|| incomplete(format!("config.json has no {key}")))
    }

    pub fn number(&self, key: &str) -> Result<Option<f64>, BadInput> {
        self.of_kind(key, "a number", Value::as_f64)
    }

    pub fn text(&self, key: &str) -> Result<Option<&'a str>, BadInput> {
        self.of_kind(key, "a text", Value::as_str)
    }

    /// Whether a key is set. 0 and 1 are what Python takes for it, too.
    pub fn flag(&self, key: &str) -> Result<bool, BadInput> {
        let read = |value: &Value| match value.as_u64() {
            Some(number @ 0..=1) => Some(number == 1),
            _ => value.as_bool(),
        };
        Ok(self.of_kind(key, "true or false", read)?.unwrap_or(false))
    }

    pub fn table(&self, key: &str) -> Result<Option<Keys<'a>>, BadInput> {
        self.of_kind(key, "a table", |value| value.as_object().map(Keys))
    }

    /// The first of these keys that the table has.
    pub fn first(&self, keys: &[&'static str]) -> Option<&'static str> {
        keys.iter().copied().find(|key| self.get(key).is_some())
    }

    /// Whether a plan of any family reads a key, or needs nothing of it.
    pub fn is_of_a_plan(key: &str) -> bool {
        let spelled = SPELLED.iter().any(|(_, others)| others.contains(&key));
        spelled || lists(CHANGE_NO_COUNT, key)
    }

    /// How many experts the model has, and the key that says it. Models that see have the numbers
    /// of their text in a table.
    pub fn experts(&self) -> Option<(&'static str, u64)> {
        let many = |keys: &Keys| {
            let first = |value: &Value| match value {
                Value::Array(of_layers) => of_layers.iter().filter_map(Value::as_u64).max(),
                value => value.as_u64(),
            };
            let number = |key: &'static str| Some((key, first(keys.get(key)?)?));
            EXPERTS.into_iter().filter_map(number).find(|(_, number)| *number > 1)
        };
        let tables = self.0.values().filter_map(Value::as_object);
        many(self).or_else(|| tables.map(Keys).find_map(|table| many(&table)))
    }

    /// The keys that are in no list. `more`: those that a plan knows, beside what is known to
    /// change nothing at all.
    pub fn unread_keys(&self, more: impl Fn(&str) -> bool) -> Vec<String> {
        let matters = |key: &str, value: &Value| match value {
            Value::Null => false,
            Value::Bool(false) => !lists(USUALLY_FALSE, key),
            Value::Number(number) if number.as_f64() == Some(1.0) => !lists(USUALLY_ONE, key),
            Value::Array(list) => !list.is_empty(),
            Value::Object(table) => !table.is_empty(),
            _ => true,
        };
        let known = |key: &str| {
            lists(READ, key) || lists(CHANGE_NOTHING, key) || EXPERTS.contains(&key) || more(key)
        };
        let all = self.0.iter().filter(|(key, value)| !known(key) && matters(key, value));
        all.map(|(key, _)| key.clone()).collect()
    }

    /// A sentence about those, if there are some.
    pub fn unread(&self, more: impl Fn(&str) -> bool) -> Option<String> {
        let names = self.unread_keys(more);
        (!names.is_empty()).then(|| {
            let names = some(&names);
            format!("config.json has keys that are not known here and were not read: {names}")
        })
    }
}

/// Names for a sentence: the first three, and how many more there are.
pub fn some(names: &[impl AsRef<str>]) -> String {
    let shown = names.iter().take(3).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > 3 {
        format!("{shown} and {} more", names.len() - 3)
    } else {
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_infinities_are_read_and_texts_stay() {
        let text =
            r#"{"a": [Infinity, -Infinity], "b": NaN, "NaN": "-Infinity \" NaN \\", "c": 1}"#;
        let value = json(text).unwrap();
        assert_eq!(value["a"], serde_json::json!(["Infinity", "-Infinity"]));
        assert_eq!((&value["b"], &value["NaN"]), (&"NaN".into(), &"-Infinity \" NaN \\".into()));
        let error = json("{\"a\": Infinity,\n \"b\" 1}").unwrap_err();
        assert_eq!(error.line(), 2);
        for broken in ["{\"a\": Infinit}", "\"\\", "{\"a\": \"NaN"] {
            assert!(json(broken).is_err(), "{broken}");
        }
    }
}
