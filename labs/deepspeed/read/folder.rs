//! What a folder is that has no files of an optimizer's states, and which folder to give instead.

use super::kind::{Kind, kind};
use crate::INCOMPLETE;
use crate::torch::TorchFile;
use shardlab::checkpoint::files;
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that say which folder is the newest: DeepSpeed's, and Megatron-LM's, which has a number.
const NEWEST: [&str; 2] = ["latest", "latest_checkpointed_iteration.txt"];

const NO_FILE: &str = "has no file zero_pp_rank_…_optim_states.pt";

/// What each kind of folder is, after its name, and what to do.
const STAGE_0: [&str; 2] = [
    "was saved without ZeRO (stage 0): it has model states, and no optimizer states in files of their own",
    "nothing in it is divided, so there is nothing to convert: DeepSpeed loads it in stage 0 on any number of ranks",
];
const OLD: [&str; 2] = [
    "has names of DeepSpeed before 0.8, such as zero_pp_rank_0_mp_rank_00optim_states.pt",
    "load it with a newer DeepSpeed, on as many ranks as have saved, and save it again",
];
const UNIVERSAL: [&str; 2] = [
    "is a universal checkpoint already",
    "DeepSpeed loads it on any number of ranks, with \"checkpoint\": {\"load_universal\": true} in its configuration",
];
const WEIGHTS: [&str; 2] = [
    "has weights only, and no optimizer states, of which a universal checkpoint is made",
    "load the weights in your program and begin with a new optimizer, or copy the files *_optim_states.pt of the same save here",
];
const MISSING: [&str; 2] =
    ["has model states of a run with ZeRO, and no optimizer states", INCOMPLETE];
pub(super) const EMPTY: [&str; 2] = [
    "is empty",
    "give --input_folder the folder of one save, such as checkpoints/global_step100",
];

/// The names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    names
}

/// Whether a folder has the states of an optimizer.
fn converts(folder: &Path) -> bool {
    names(folder).iter().any(|name| matches!(kind(name), Some(Kind::Shard(_))))
}

/// Whether a folder is a universal checkpoint, or inside one.
fn universal(folder: &Path) -> bool {
    let whole = |folder: &Path| folder.join("fp32.pt").is_file();
    let below = |folder: &Path| names(folder).iter().any(|name| whole(&folder.join(name)));
    whole(folder) || below(folder) || below(&folder.join("zero"))
}

/// What a folder without the states of an optimizer is, if it is no folder of saves.
fn other(folder: &Path) -> Option<[&'static str; 2]> {
    let names = names(folder);
    let has = |is: fn(&str) -> bool| names.iter().any(|name| is(name));
    let old = |name: &str| name.contains("zero_pp_rank_") && name.ends_with("optim_states.pt");
    let weights = |name: &str| name.ends_with(".safetensors") || name == "pytorch_model.bin";
    let model = names.iter().find(|name| matches!(kind(name), Some(Kind::Model(_))));
    let file = model.and_then(|model| TorchFile::open(&folder.join(model)).ok());
    let has_entry = |key: &str| {
        let value = file.as_ref().and_then(|file| file.graph.root().get(key));
        value.map(|value| !value.is_none())
    };
    // With ZeRO a model's file lists the parameters; without, it has the optimizer's state itself.
    let zero = has_entry("param_shapes") == Some(true);
    let layers = names.iter().any(|name| matches!(kind(name), Some(Kind::Layer(_))));
    match (model, has_entry("optimizer")) {
        _ if universal(folder) => Some(UNIVERSAL),
        _ if has(old) => Some(OLD),
        (Some(model), _) if zero || model.contains("zero_pp_rank_") => Some(MISSING),
        (Some(_), Some(true)) => Some(STAGE_0),
        (_, Some(false)) => Some(WEIGHTS),
        (Some(_), None) if !layers => Some(STAGE_0),
        _ if layers => Some(WEIGHTS),
        _ if names.is_empty() => Some(EMPTY),
        _ => has(weights).then_some(WEIGHTS),
    }
}

/// A file that says which folder is the newest, and that folder's name.
fn named(folder: &Path) -> Option<(&'static str, String)> {
    NEWEST.iter().find_map(|file| {
        let text = String::from_utf8(files::read(&folder.join(file), 200).ok()?).ok()?;
        let text = text.trim();
        let harmless = !text.is_empty() && !text.contains(char::is_control);
        let step = if file.ends_with(".txt") { "global_step" } else { "" };
        harmless.then(|| (*file, format!("{step}{text}")))
    })
}

/// The newest folder below that can be converted: of two levels, because a Trainer's output has
/// `checkpoint-3/global_step3`. The largest step is the newest, or the last that was written.
pub(super) fn newest(folder: &Path) -> Option<PathBuf> {
    let below = |folder: &Path| {
        let paths = names(folder).into_iter().map(|name| folder.join(name));
        paths.filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let first = below(folder);
    let second: Vec<PathBuf> = first.iter().flat_map(|folder| below(folder)).collect();
    let all = first.into_iter().chain(second).filter(|folder| converts(folder));
    let age = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let begin = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let written = path.metadata().and_then(|data| data.modified());
        (name[begin..].parse::<u64>().ok(), written.unwrap_or(SystemTime::UNIX_EPOCH))
    };
    all.max_by_key(age)
}

/// Says what a folder is that has no optimizer states, and what to do.
pub(super) fn nothing(folder: &Path) -> BadInput {
    let is = |folder: &Path, [is, help]: [&str; 2]| {
        BadInput::new(format!("{} {is}", folder.display()), help)
    };
    let own = other(folder);
    if let Some(own) = own.filter(|own| *own != WEIGHTS) {
        return is(folder, own);
    }
    let mut what = format!("{} {NO_FILE}", folder.display());
    let mut right = newest(folder);
    let mut help = own.map(|[_, help]| help);
    if let Some((file, name)) = named(folder) {
        let named = folder.join(&name);
        let of_named = other(&named).filter(|_| named.is_dir());
        if converts(&named) {
            right = Some(named);
        } else {
            let is = if named.is_dir() { NO_FILE } else { "is not there" };
            let is = of_named.map_or(is, |[is, _]| is);
            what = format!("{}/{file} names {name}, which {is}", folder.display());
            help = of_named.map_or(Some(INCOMPLETE), |[_, help]| Some(help));
        }
    }
    if let Some(right) = right {
        return BadInput::new(what, format!("its newest checkpoint is {}", right.display()));
    }
    let below = names(folder).into_iter().map(|name| folder.join(name));
    let known = below.filter(|path| path.is_dir()).find_map(|path| Some((other(&path)?, path)));
    match (help, own, known) {
        (_, Some(own), _) => is(folder, own),
        (None, _, Some((known, path))) => is(&path, known),
        _ => BadInput::new(what, help.unwrap_or(INCOMPLETE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: &str = "zero_pp_rank_0_mp_rank_00_optim_states.pt";
    const MODEL: &str = "mp_rank_00_model_states.pt";

    /// A folder with these files, and what is said of it, without its own name.
    fn said(files: &[&str], latest: &[(&str, &str)]) -> [String; 2] {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in
            files.iter().map(|file| (file, &"")).chain(latest.iter().map(|(a, b)| (a, b)))
        {
            let path = dir.path().join(file);
            if file.ends_with('/') {
                std::fs::create_dir_all(path).unwrap();
            } else {
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
        }
        let BadInput { what, help } = nothing(dir.path());
        let own = dir.path().display().to_string();
        [what, help].map(|text| text.replace(&format!("{own}/"), "").replace(&own, "it"))
    }

    #[test]
    fn each_kind_of_folder_has_its_own_sentence() {
        for (files, [is, help]) in [
            (&[MODEL][..], STAGE_0),
            (&[MODEL, "mp_rank_01_model_states.pt"], STAGE_0),
            (&["zero_pp_rank_0_mp_rank_00_model_states.pt"], MISSING),
            (&["zero_pp_rank_0_mp_rank_00optim_states.pt", MODEL], OLD),
            (&["layer_01-model_states.pt", MODEL], WEIGHTS),
            (&["layer_01-model_00-model_states.pt"], WEIGHTS),
            (&["model.safetensors", "config.json"], WEIGHTS),
            (&["zero/a.weight/fp32.pt", MODEL], UNIVERSAL),
            (&["a.weight/fp32.pt", "optimizer_state.pt"], UNIVERSAL),
            (&["fp32.pt", "exp_avg.pt"], UNIVERSAL),
            (&[], EMPTY),
        ] {
            assert_eq!(said(files, &[]), [format!("it {is}"), help.to_string()], "{files:?}");
        }
        let below = ["global_step7/zero/a/fp32.pt", "global_step7/mp_rank_00_model_states.pt"];
        let [what, _] = said(&below, &[("latest_universal", "global_step7")]);
        assert_eq!(what, format!("global_step7 {}", UNIVERSAL[0]));
        let [what, help] = said(&["pytorch_model/mp_rank_00_model_states.pt"], &[]);
        assert_eq!([what, help], [format!("pytorch_model {}", STAGE_0[0]), STAGE_0[1].into()]);
    }

    #[test]
    fn the_newest_folder_below_is_named_by_its_step() {
        let save = |folder: &str| format!("{folder}/{SHARD}");
        let none = "it has no file zero_pp_rank_…_optim_states.pt";
        for (folders, latest, right) in [
            (&["global_step9", "global_step10"][..], vec![], "global_step10"),
            (
                &["global_step9", "global_step10"],
                vec![("latest", "global_step9\n")],
                "global_step9",
            ),
            (&["pytorch_model"], vec![], "pytorch_model"),
            (
                &["checkpoint-9/global_step9", "checkpoint-10/global_step10"],
                vec![],
                "checkpoint-10/global_step10",
            ),
            (
                &["global_step3", "global_step6"],
                vec![("latest_checkpointed_iteration.txt", "3\n")],
                "global_step3",
            ),
        ] {
            let files: Vec<String> = folders.iter().map(|folder| save(folder)).collect();
            let files: Vec<&str> = files.iter().map(String::as_str).collect();
            let help = format!("its newest checkpoint is {right}");
            assert_eq!(said(&files, &latest), [none.to_string(), help], "{folders:?}");
        }
    }

    #[test]
    fn a_latest_that_names_no_save_is_not_believed() {
        let save = format!("global_step100/{SHARD}");
        let better = "its newest checkpoint is global_step100";
        for (file, is) in [
            (None, "is not there"),
            (Some("global_step200/"), EMPTY[0]),
            (Some("global_step200/mp_rank_00_model_states.pt"), STAGE_0[0]),
            (Some("global_step200/zero/a/fp32.pt"), UNIVERSAL[0]),
            (Some("global_step200/x"), "has no file zero_pp_rank_…_optim_states.pt"),
        ] {
            let files: Vec<&str> = [save.as_str()].into_iter().chain(file).collect();
            let what = format!("latest names global_step200, which {is}");
            let said = said(&files, &[("latest", "global_step200")]);
            assert_eq!(said, [what, better.to_string()]);
        }
        let [what, help] =
            said(&["global_step50/mp_rank_00_model_states.pt"], &[("latest", "global_step50")]);
        assert_eq!(what, format!("latest names global_step50, which {}", STAGE_0[0]));
        assert_eq!(help, STAGE_0[1]);
        let said = said(&[], &[("latest", "global_step50")]);
        assert_eq!(said, ["latest names global_step50, which is not there", INCOMPLETE]);
    }
}
