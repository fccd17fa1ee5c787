//! What a folder or a file has instead of a Llama's weights, in words that say what to do.

use shapes::config_json::some;
use shardlab::error::BadInput;
use std::path::Path;

/// Signs in names, what they show, and what to do. Of signs with a blank between them one is
/// enough; of those with a star between them a name has all.
type Row = (&'static str, &'static str, &'static str);

/// Files that have weights which are not read here.
const FILES: [Row; 6] = [
    ("adapter_model", "an adapter's weights, which change another model's", MERGE),
    ("consolidated", "weights in Meta's or Mistral's own format", FOR_TRANSFORMERS),
    (".gguf.part", "a part of a GGUF file that was cut in pieces", JOIN_PIECES),
    ("-of-*.safetensors", SHARDS, "fetch the index, and all parts"),
    (".safetensors", "weights of another name", RENAME),
    (".bin .pt", "weights as PyTorch saves them, which are not read here", CONVERT),
];

/// Any other file.
const NO_MODEL: Row = (
    "",
    "it does not begin as a GGUF file does",
    "give a folder with config.json, model.safetensors and tokenizer.json, or a GGUF file",
);

/// Tensors that other models' files have.
const TENSORS: [Row; 5] = [
    (".lora_A. .lora_B.", "an adapter's matrices", MERGE),
    (QUANTISED, "quantised weights", UNQUANTISED),
    (EXPERTS, "experts in place of one MLP", DENSE),
    (FUSED, "several matrices in one tensor", DIVIDE),
    (METAS, "the names of Meta's own format", FOR_TRANSFORMERS),
];

const QUANTISED: &str = ".qweight .weight_packed .weight_scale .scales .absmax .SCB";
const EXPERTS: &str = "experts. block_sparse_moe _exps. ffn_gate_inp ffn_gate.0. mlp.gate.weight";
const FUSED: &str = "qkv query_key_value W_pack c_attn gate_up w12";
const METAS: &str = "tok_embeddings. attention.wq feed_forward.w1";

const SHARDS: &str = "parts of the weights, without model.safetensors.index.json, which lists them";

const MERGE: &str =
    "merge the adapter into its model (PEFT's merge_and_unload), and give the folder of that";
const FOR_TRANSFORMERS: &str =
    "fetch the files for transformers: model.safetensors, or all parts of it and their index";
pub(super) const JOIN_PIECES: &str =
    "join all parts, in their order: cat NAME.gguf.part* > NAME.gguf";
const RENAME: &str = "if they are the whole model, rename the file to model.safetensors";
const CONVERT: &str =
    "fetch the weights as safetensors, or load the model with transformers and save it anew";
const UNQUANTISED: &str = "give the model that was quantised, or a GGUF file";
const DENSE: &str = "models with experts do not run here: choose a dense Llama";
const DIVIDE: &str =
    "divide its rows into the matrices that are missing, or let transformers save it as a Llama";
const UNWRAP: &str =
    "rename the tensors; or save the model itself, not what wraps it or is inside of it";

/// The first row of a table that some of these names show, and those names.
fn first<'a>(table: &[Row], names: &'a [impl AsRef<str>]) -> Option<(Vec<&'a str>, Row)> {
    for row in table {
        let mut such: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        such.retain(|name| row.0.split(' ').any(|signs| has_all(name, signs)));
        if !such.is_empty() {
            return Some((such, *row));
        }
    }
    None
}

fn has_all(name: &str, signs: &str) -> bool {
    signs.split('*').all(|sign| name.contains(sign))
}

/// The refusal of a folder with these files, none of which has weights that are read.
pub(super) fn no_weights(dir: &Path, files: &[String]) -> BadInput {
    let lacks = "has neither model.safetensors nor model.safetensors.index.json";
    let what = format!("{} {lacks}", dir.display());
    match first(&FILES, files) {
        Some((such, (_, is, help))) => {
            BadInput::new(format!("{what}, but {}: {is}", some(&such)), help)
        }
        None => BadInput::new(what, "fetch the model's weights as safetensors, or as a GGUF file"),
    }
}

/// The refusal of a file that is neither GGUF nor one of its folder's weights.
pub(super) fn no_model(path: &Path, name: &str) -> BadInput {
    let (_, is, help) = first(&FILES, &[name]).map_or(NO_MODEL, |(_, row)| row);
    BadInput::new(format!("{} is no model: {is}", path.display()), help)
}

/// What a file has in place of the tensors that it lacks, of which this is the first, and what to
/// do about it.
pub(super) fn in_place_of(missing: &str, there: &[&str]) -> Option<(String, &'static str)> {
    if let Some((such, (_, is, help))) = first(&TENSORS, there) {
        return Some((format!("{}: {is}", such[0]), help));
    }
    let core = missing.strip_prefix("model.").unwrap_or(missing);
    let usual = missing.strip_suffix(core).unwrap_or_default();
    let is_whole = |begin: &&str| begin.is_empty() || begin.ends_with('.');
    for name in there {
        let Some(begin) = name.strip_suffix(core).filter(is_whole) else {
            continue;
        };
        let names = match begin.strip_suffix(usual) {
            Some(wrap) => format!("begin with {wrap}"),
            None if begin.is_empty() => format!("lack the {usual}"),
            None => format!("begin with {begin}, not with {usual}"),
        };
        return Some((format!("{name}: its names {names}"), UNWRAP));
    }
    let help = "do the file that describes the model and the weights belong together?";
    (!there.is_empty()).then(|| (some(there), help))
}
