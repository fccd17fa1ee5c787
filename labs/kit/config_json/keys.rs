//! The keys of a config.json: read by name and kind, or known to change nothing, or neither.

use super::incomplete;
use serde_json::{Map, Value};
use shardlab::error::BadInput;

/// Keys that are read, for a plan or to compute with.
const READ: &str = "
    architectures attention_bias compression_config head_dim hidden_act hidden_size
    intermediate_size is_causal max_position_embeddings max_sequence_length mlp_bias model_type
    num_attention_heads num_hidden_layers num_key_value_heads partial_rotary_factor quantization
    quantization_config rms_norm_eps rope_parameters rope_scaling rope_theta sliding_window
    tie_word_embeddings vocab_size";

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
const EXPERTS: [&str; 5] = [
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "moe_num_experts",
    "num_moe_experts",
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
fn in_words(value: &Value) -> String {
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
pub(super) struct Keys<'a>(pub &'a Map<String, Value>);

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

    pub fn size(&self, key: &str) -> Result<Option<usize>, BadInput> {
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

    /// How many experts the model has, and the key that says it. Models that see have the numbers
    /// of their text in a table.
    pub fn experts(&self) -> Option<(&'static str, u64)> {
        let many = |keys: &Keys| {
            let number = |key: &'static str| Some((key, keys.get(key)?.as_u64()?));
            EXPERTS.into_iter().filter_map(number).find(|(_, number)| *number > 1)
        };
        let tables = self.0.values().filter_map(Value::as_object);
        many(self).or_else(|| tables.map(Keys).find_map(|table| many(&table)))
    }

    /// A sentence about the keys that are in no list, if there are some.
    pub fn unread(&self) -> Option<String> {
        let matters = |key: &str, value: &Value| match value {
            Value::Null => false,
            Value::Bool(false) => !lists(USUALLY_FALSE, key),
            Value::Number(number) if number.as_f64() == Some(1.0) => !lists(USUALLY_ONE, key),
            Value::Array(list) => !list.is_empty(),
            Value::Object(table) => !table.is_empty(),
            _ => true,
        };
        let known =
            |key: &str| lists(READ, key) || lists(CHANGE_NOTHING, key) || EXPERTS.contains(&key);
        let all = self.0.iter().filter(|(key, value)| !known(key) && matters(key, value));
        let names: Vec<&str> = all.map(|(key, _)| key.as_str()).collect();
        (!names.is_empty()).then(|| {
            let names = some(&names);
            format!("config.json has keys that are not known here and were not read: {names}")
        })
    }
}

/// Names for a sentence: the first three, and how many more there are.
pub fn some(names: &[&str]) -> String {
    let shown = names.iter().take(3).copied().collect::<Vec<_>>().join(", ");
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
