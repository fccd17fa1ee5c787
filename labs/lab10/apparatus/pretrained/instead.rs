//! What a folder or a file has instead of a Llama's weights, in words that say what to do.

use kit::config_json::some;
use shardlab::error::BadInput;
use std::path::Path;

/// Files that have weights which are not read here: parts of the name, what they are, what to do.
const FILES: [(&[&str], &str, &str); 7] = [
    (
        &["adapter_model"],
        "an adapter's weights, which change another model's",
        "merge the adapter into its model (PEFT's merge_and_unload), and give the folder of that",
    ),
    (
        &["consolidated"],
        "weights in Meta's or Mistral's own format",
        "fetch the files for transformers: model.safetensors, or all parts of it and their index",
    ),
    (
        &[".gguf.part"],
        "a part of a GGUF file that was cut in pieces",
        "join all parts, in their order: cat NAME.gguf.part* > NAME.gguf",
    ),
    (
        &["-of-", ".safetensors"],
        "parts of the weights, without model.safetensors.index.json, which lists them",
        "fetch the index, and all parts",
    ),
    (
        &[".safetensors"],
        "weights of another name",
        "if they are the whole model, rename the file to model.safetensors",
    ),
    (&[".bin"], PYTORCH, CONVERT),
    (&[".pt"], PYTORCH, CONVERT),
];

const PYTORCH: &str = "weights as PyTorch saves them, which are not read here";
const CONVERT: &str =
    "fetch the weights as safetensors, or load the model with transformers and save it anew";

/// Parts of tensors' names that other models' files have, what they show, and what to do.
const TENSORS: [(&[&str], &str, &str); 5] = [
    (
        &[".lora_A.", ".lora_B."],
        "an adapter's matrices",
        "merge the adapter into its model (PEFT's merge_and_unload), and give the folder of that",
    ),
    (
        &[".qweight", ".weight_packed", ".weight_scale", ".scales", ".absmax", ".SCB"],
        "quantised weights",
        "give the model that was quantised, or a GGUF file",
    ),
    (
        &[
            "experts.",
            "block_sparse_moe",
            "_exps.",
            "ffn_gate_inp",
            "ffn_gate.0.",
            "mlp.gate.weight",
        ],
        "experts in place of one MLP",
        "models with experts do not run here: choose a dense Llama",
    ),
    (
        &["qkv", "query_key_value", "W_pack", "c_attn", "gate_up", "w12"],
        "several matrices in one tensor",
        "divide its rows into the matrices that are missing, or let transformers save it as a Llama",
    ),
    (
        &["tok_embeddings.", "attention.wq", "feed_forward.w1"],
        "the names of Meta's own format",
        "fetch the model's files for transformers",
    ),
];

/// The refusal of a folder without weights that are read.
pub(super) fn no_weights(dir: &Path, lacks: &str) -> BadInput {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let what = format!("{} {lacks}", dir.display());
    for (parts, kind, help) in FILES {
        let is = |name: &&str| parts.iter().all(|part| name.contains(part));
        let such: Vec<&str> = names.iter().map(String::as_str).filter(is).collect();
        if !such.is_empty() {
            return BadInput::new(format!("{what}, but {}: {kind}", some(&such)), help);
        }
    }
    BadInput::new(what, "fetch the model's weights as safetensors, or as a GGUF file")
}

/// The refusal of a file that is neither GGUF nor one of its folder's weights.
pub(super) fn no_model(path: &Path) -> BadInput {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let known = FILES.iter().find(|(parts, ..)| parts.iter().all(|part| name.contains(part)));
    let (kind, help) = known.map_or(
        (
            "it does not begin as a GGUF file does",
            "give a folder with config.json, model.safetensors and tokenizer.json, or a GGUF file",
        ),
        |&(_, kind, help)| (kind, help),
    );
    BadInput::new(format!("{} is no model: {kind}", path.display()), help)
}

/// What a file has in place of the tensors that it lacks, and what to do about it.
pub(super) fn in_place_of(missing: &[&str], there: &[&str]) -> Option<(String, &'static str)> {
    for (signs, kind, help) in TENSORS {
        let such = there.iter().find(|name| signs.iter().any(|sign| name.contains(sign)));
        if let Some(name) = such {
            return Some((format!("{name}: {kind}"), help));
        }
    }
    let first = missing.first()?;
    let core = first.strip_prefix("model.").unwrap_or(first);
    let before =
        |name: &&&str| name.strip_suffix(core).is_some_and(|p| p.is_empty() || p.ends_with('.'));
    if let Some(name) = there.iter().find(before) {
        let prefix = name.strip_suffix(core).unwrap_or_default();
        let what = match (name.strip_suffix(first), prefix) {
            (Some(prefix), _) => format!("{name}: its names begin with {prefix}"),
            (None, "") => format!("{name}: its names lack the {}", first.replace(core, "")),
            (None, prefix) => format!("{name}: its names begin with {prefix}, not with model."),
        };
        let help =
            "rename the tensors; or save the model itself, not what wraps it or is inside of it";
        return Some((what, help));
    }
    (!there.is_empty()).then(|| {
        (
            some(there),
            "do the file that describes the model and the weights belong together?",
        )
    })
}
