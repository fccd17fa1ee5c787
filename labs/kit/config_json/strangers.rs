//! What a file is that describes no model of a known family, and models without a usual head.

use super::keys::Keys;
use serde_json::Value;
use shardlab::error::BadInput;

/// Other JSON files of a model's folder, by a key that shows them where no family is named: what
/// they are, and what to give instead.
const FILES: [(&[&str], &str, &str); 7] = [
    (
        &["peft_type"],
        "it holds an adapter's settings",
        "give the config.json of the model that it adapts (base_model_name_or_path)",
    ),
    (
        &["dim", "n_layers"],
        "it is Meta's own format (dim, n_layers)",
        "give the config.json of the model's folder for transformers",
    ),
    (&["weight_map"], "it is the index of a model's weights", BESIDE),
    (&["added_tokens", "added_tokens_decoder"], "it is a tokenizer's file", BESIDE),
    (
        &["tokenizer_class", "model_max_length"],
        "it holds a tokenizer's settings",
        BESIDE,
    ),
    (
        &["zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu"],
        "it holds DeepSpeed's settings",
        "give the config.json of the model that it trains",
    ),
    (
        &["_from_model_config", "do_sample", "max_new_tokens", "eos_token_id"],
        "it holds settings of generation, and no model's widths",
        BESIDE,
    ),
];

const BESIDE: &str = "give the config.json that is beside it";

/// The refusal of a file that names no family.
pub(super) fn without_a_family(keys: &Keys) -> BadInput {
    let has_widths = keys.get("hidden_size").is_some();
    let found = FILES.into_iter().find(|(signs, ..)| !has_widths && keys.first(signs).is_some());
    let (_, what, help) = found.unwrap_or((
        &[],
        "it has no model_type",
        "give --config a model's own, complete file",
    ));
    BadInput::new(format!("this is no model's config.json: {what}"), help)
}

/// What sets a family apart that is not known, for the end of a sentence.
pub(super) fn traits(keys: &Keys) -> String {
    if let Some((key, experts)) = keys.experts() {
        return format!(": it has {experts} experts in a layer ({key})");
    }
    let states = ["mamba_num_heads", "mamba_d_state", "ssm_state_size", "state_size", "ssm_cfg"];
    match keys.first(&states) {
        Some(key) => format!(": it has state-space layers ({key})"),
        None => String::new(),
    }
}

/// Flags that describe the model without its file, if its numbers are there: for the end of a help.
pub(super) fn by_hand(keys: &Keys) -> String {
    let is_a_family = keys.get("model_type").is_some();
    if is_a_family && !traits(keys).is_empty() {
        let what = "; --layers, --embd, --heads and --ffn describe a Llama, with one MLP a layer";
        return what.to_string();
    }
    let mut flags = String::new();
    let mut found = 0;
    for (flag, names) in [
        ("layers", ["num_hidden_layers", "n_layers", "n_layer"]),
        ("embd", ["hidden_size", "dim", "n_embd"]),
        ("heads", ["num_attention_heads", "n_heads", "n_head"]),
        ("kv-heads", ["num_key_value_heads", "n_kv_heads", "multi_query_group_num"]),
        ("ffn", ["intermediate_size", "hidden_dim", "n_inner"]),
        ("vocab", ["vocab_size", "padded_vocab_size", "n_vocab"]),
    ] {
        let number = names.iter().find_map(|name| keys.get(name)?.as_u64());
        if let Some(number) = number {
            flags += &format!(" --{flag} {number}");
            found += usize::from(["layers", "embd", "heads"].contains(&flag));
        }
    }
    match (found, is_a_family) {
        (3, _) => format!("; or describe a Llama of its widths, with a head of its own:{flags}"),
        (_, true) => "; or describe a Llama by hand: --layers, --embd, --heads".to_string(),
        (_, false) => String::new(),
    }
}

/// Whether `architectures` names a model without a head over the tokens, and a note.
pub(super) fn head(keys: &Keys) -> (bool, Option<String>) {
    let named = match keys.get("architectures") {
        Some(Value::Array(list)) => list.first().and_then(Value::as_str),
        other => other.and_then(Value::as_str),
    };
    let Some(name) = named else {
        return (false, None);
    };
    let ends = |suffixes: &[&str]| suffixes.iter().any(|end| name.ends_with(end));
    let draft = ["Eagle", "EAGLE", "Medusa", "Speculator", "Draft"]
        .iter()
        .any(|word| name.contains(word));
    if draft {
        let what =
            "a draft beside a larger model: its layers and token table are counted, without a head";
        return (true, Some(format!("{name} is {what}; matrices that only drafts have are not")));
    }
    if ends(&["ForCausalLM", "LMHeadModel", "ForConditionalGeneration"]) {
        return (false, None);
    }
    let none = format!("{name} has no head over the vocabulary, and none is counted");
    let scores = ["Classification", "QuestionAnswering", "ForScore", "ForRegression"];
    if ends(&scores) || name.contains("Reward") {
        let own = "; its own small head is not counted either";
        return (true, Some(none + own));
    }
    if ends(&["Model", "Encoder", "ForEmbedding", "ForRetrieval"]) {
        return (true, Some(none));
    }
    let note = format!("architectures names {name}, which is not known here: a head is counted");
    (false, Some(note))
}
