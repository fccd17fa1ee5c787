//! What a file is that describes no model of a known family, and models without a usual head.

use super::keys::Keys;
use super::{check, head_width};
use crate::error::BadInput;
use crate::model::{Dense, Family, ModelShape};
use serde_json::Value;

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

/// Layers of other kinds, by keys that show them.
const OTHER_LAYERS: [(&[&str], &str); 5] = [
    (
        &[
            "mamba_num_heads",
            "mamba_d_state",
            "ssm_state_size",
            "state_size",
            "ssm_cfg",
            "mamba_n_heads",
        ],
        "state-space layers",
    ),
    (
        &[
            "linear_num_value_heads",
            "linear_attn_config",
            "lru_width",
            "attention_hidden_size",
        ],
        "recurrent layers",
    ),
    (&["conv_L_cache"], "convolutions in place of attention"),
    (&["kv_lora_rank"], "attention with latent keys and values"),
    (&["cross_attention_layers"], "layers that attend to pictures"),
];

/// What sets a family apart that is not known, for the end of a sentence.
pub(super) fn traits(keys: &Keys) -> String {
    if let Some((key, experts)) = keys.experts() {
        return format!(": it has {experts} experts in a layer ({key})");
    }
    let inner = nested(keys).map(|(_, inner)| inner);
    for table in [Some(*keys), inner].into_iter().flatten() {
        for (signs, what) in OTHER_LAYERS {
            if let Some(key) = table.first(signs) {
                return format!(": it has {what} ({key})");
            }
        }
    }
    match (keys.flag("is_encoder_decoder"), architecture(keys)) {
        (Ok(true), _) => ": it has an encoder and a decoder (is_encoder_decoder)".into(),
        (_, Some(name)) if name.contains("MaskedLM") => {
            format!(": it is an encoder, whose tokens see both sides ({name})")
        }
        _ => String::new(),
    }
}

/// The table of a model that sees or hears which describes its language model.
pub fn nested<'a>(keys: &Keys<'a>) -> Option<(&'static str, Keys<'a>)> {
    let tables = ["text_config", "llm_config", "language_config"];
    let table = keys.first(&tables)?;
    Some((table, keys.table(table).ok().flatten()?))
}

/// The parts of such a model that are not its language model, for a sentence.
pub fn towers(keys: &Keys) -> String {
    let parts = ["vision_config", "audio_config", "vision_tower_config", "vit_config"];
    match keys.first(&parts) {
        Some(part) => format!(", without the tower of its {part}"),
        None => String::new(),
    }
}

/// Keys that give a decoder other parameters than a Llama of its widths has.
const OTHER_PARAMETERS: [&str; 5] = [
    "hidden_size_per_layer_input",
    "num_kv_shared_layers",
    "use_double_wide_mlp",
    "global_head_dim",
    "attention_k_eq_v",
];

/// How to describe a model without its file, for a help. `tied` is what the table around says.
pub(super) fn by_hand(keys: &Keys, tied: bool) -> String {
    if !traits(keys).is_empty() {
        return "a Llama of its widths is another model, and none is offered".into();
    }
    let set = |key: &&str| keys.get(key).is_some_and(|value| *value != 0 && *value != false);
    let others: Vec<&str> = OTHER_PARAMETERS.into_iter().filter(set).collect();
    if !others.is_empty() {
        let names = super::some(&others);
        return format!("a Llama of its widths is another model, because of {names}");
    }
    let flags = "describe a Llama by hand: --layers, --embd, --heads, --kv-heads, --head-width, \
                 --ffn, --vocab, --tied";
    llama_of_its_widths(keys, tied).unwrap_or(flags.into())
}

/// Flags for a Llama with the numbers of a file of any family. They run: there are none, if a check
/// would refuse them.
pub(super) fn llama_of_its_widths(keys: &Keys, tied: bool) -> Option<String> {
    let number = |key: &str, of_meta: &str| match keys.size(key).ok()? {
        None => keys.size(of_meta).ok()?,
        given => given,
    };
    let layers = number("num_hidden_layers", "n_layers")?;
    let embd = number("hidden_size", "dim")?;
    let heads = number("num_attention_heads", "n_heads")?;
    let kv_heads = number("num_key_value_heads", "n_kv_heads");
    let head = number("head_dim", "head_width");
    let ffn = number("intermediate_size", "hidden_dim").or_else(|| metas_ffn(keys, embd));
    let vocabulary = number("vocab_size", "n_vocab");
    let tied = tied || keys.flag("tie_word_embeddings").unwrap_or(false);
    let width = head.or_else(|| head_width(embd, heads).ok())?;
    let dense = Dense::llama(kv_heads.unwrap_or(heads), width, ffn.unwrap_or(embd));
    let vocab = vocabulary.unwrap_or(32_000);
    let family = Family::Dense(dense);
    check(&ModelShape {
        vocabulary: vocab,
        block: 4096,
        layers,
        heads,
        embd,
        family,
        experts: None,
    })
    .ok()?;
    let mut flags = format!("--layers {layers} --embd {embd} --heads {heads}");
    for (flag, number) in [
        ("kv-heads", kv_heads.filter(|kv_heads| *kv_heads != heads)),
        ("head-width", head.filter(|head| *head * heads != embd)),
        ("ffn", ffn),
        ("vocab", vocabulary),
    ] {
        if let Some(number) = number {
            flags += &format!(" --{flag} {number}");
        }
    }
    let tied = if tied { " --tied" } else { "" };
    Some(format!("describe a Llama of its widths: {flags}{tied}"))
}

/// The width of the MLP that Meta's own code makes of its file: two thirds of 4 widths, times a
/// factor, up to a multiple.
fn metas_ffn(keys: &Keys, embd: usize) -> Option<usize> {
    let multiple = keys.size("multiple_of").ok()??.max(1);
    let factor = keys.number("ffn_dim_multiplier").ok()?.unwrap_or(1.0);
    let wide = (factor * (embd.checked_mul(8)? / 3) as f64) as usize;
    wide.checked_next_multiple_of(multiple)
}

/// The class that the file names first.
fn architecture<'a>(keys: &Keys<'a>) -> Option<&'a str> {
    match keys.get("architectures")? {
        Value::Array(list) => list.first()?.as_str(),
        other => other.as_str(),
    }
}

/// Whether `architectures` names a model without a head over the tokens, and a note.
pub fn head(keys: &Keys) -> (bool, Option<String>) {
    let Some(name) = architecture(keys) else {
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
