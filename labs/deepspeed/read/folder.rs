//! What a folder is that has no files of an optimizer's states, and which folder to give instead.

use super::kind::{Kind, kind, names};
use crate::INCOMPLETE;
use crate::dcp;
use crate::torch::TorchFile;
use shardlab::checkpoint::files;
use shardlab::error::BadInput;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files that say which folder is the newest: DeepSpeed's, and Megatron-LM's, which has a number.
const NEWEST: [&str; 2] = ["latest", "latest_checkpointed_iteration.txt"];

/// What each kind of folder is, after its name, and what to do.
const UNKNOWN: [&str; 2] = ["has no file zero_pp_rank_…_optim_states.pt", INCOMPLETE];
const GONE: [&str; 2] = ["is not there", INCOMPLETE];
const STAGE_0: [&str; 2] = [
    "was saved without ZeRO (stage 0): it has model states, and no optimizer states in files of their own",
    "nothing in it is divided, so there is nothing to convert: DeepSpeed loads it in stage 0 on any number of ranks",
];
const OLD: [&str; 2] = [
    "has names of DeepSpeed before 0.8, such as zero_pp_rank_0_mp_rank_00optim_states.pt",
    "load it with a newer DeepSpeed, on as many ranks as have saved, and save it again",
];
const OF_PYTORCH: [&str; 2] = [
    "is PyTorch's distributed checkpoint, which is no save of ZeRO",
    "see what is in it with `checkpoint inspect`; PyTorch loads it on any number of ranks as it is",
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

/// Whether a folder is a universal checkpoint, or inside one.
fn universal(folder: &Path) -> bool {
    let whole = |folder: &Path| folder.join("fp32.pt").is_file();
    let below = |folder: &Path| names(folder).iter().any(|name| whole(&folder.join(name)));
    whole(folder) || below(folder) || below(&folder.join("zero"))
}

/// What a folder without the states of an optimizer is, and what to do.
fn other(folder: &Path) -> [&'static str; 2] {
    let names = names(folder);
    let kinds: BTreeSet<Kind> = names.iter().filter_map(|name| Some(kind(name)?.0)).collect();
    let has = |kind| kinds.contains(&kind);
    let model = names
        .iter()
        .find(|name| kind(name).is_some_and(|(kind, _)| kind == Kind::Model));
    let file = model.and_then(|model| TorchFile::open(&folder.join(model)).ok());
    let entry = |key: &str| {
        let root = file.as_ref()?.graph.root();
        Some(root.get(key).is_some_and(|value| !value.is_none()))
    };
    // With ZeRO a model's file lists the parameters; without, it has the optimizer's state itself.
    let zero = has(Kind::ModelOfRank) || entry("param_shapes") == Some(true);
    let stage_0 = has(Kind::Model) && entry("optimizer").unwrap_or(!has(Kind::Layer));
    let weights = has(Kind::Model) || has(Kind::Layer) || has(Kind::Weights);
    let all = [
        (!folder.is_dir(), GONE),
        (names.is_empty(), EMPTY),
        (universal(folder), UNIVERSAL),
        (folder.join(dcp::METADATA).exists(), OF_PYTORCH),
        (has(Kind::Old), OLD),
        (zero, MISSING),
        (stage_0, STAGE_0),
        (weights && newest(folder).is_none(), WEIGHTS),
    ];
    all.into_iter().find(|(is, _)| *is).map_or(UNKNOWN, |(_, other)| other)
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

/// Whether a folder has the states of an optimizer.
fn converts(folder: &Path) -> bool {
    names(folder)
        .iter()
        .any(|name| kind(name).is_some_and(|(kind, _)| kind == Kind::Shard))
}

fn below(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let paths = names(folder).into_iter().map(|name| folder.join(name));
    paths.filter(|path| path.is_dir())
}

/// The newest folder below that can be converted: of two levels, because a Trainer's output has
/// `checkpoint-3/global_step3`. The largest step is the newest, or the last that was written.
pub(super) fn newest(folder: &Path) -> Option<PathBuf> {
    let first: Vec<PathBuf> = below(folder).collect();
    let second: Vec<PathBuf> = first.iter().flat_map(|folder| below(folder)).collect();
    let all = first.into_iter().chain(second).filter(|folder| converts(folder));
    all.max_by_key(|path| {
        // The step of checkpoint_3/pytorch_model is 3.
        let path_below = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
        let mut parts = path_below.rsplit(|c: char| !c.is_ascii_digit());
        let step = parts.find_map(|part| part.parse::<u64>().ok());
        let written = path.metadata().and_then(|data| data.modified());
        (step, written.unwrap_or(SystemTime::UNIX_EPOCH))
    })
}

/// Says what a folder is that has no optimizer states, and what to do.
pub(super) fn nothing(folder: &Path) -> BadInput {
    let mut right = newest(folder);
    let mut what = folder.display().to_string();
    let mut said = other(folder);
    if let Some((file, name)) = named(folder) {
        let named = folder.join(&name);
        if converts(&named) {
            right = Some(named);
        } else {
            what = format!("{what}/{file} names {name}, which");
            said = other(&named);
        }
    } else if said == UNKNOWN
        && right.is_none()
        && let Some(known) = below(folder).find(|folder| other(folder) != UNKNOWN)
    {
        what = known.display().to_string();
        said = other(&known);
    }
    let [is, help] = said;
    let what = format!("{what} {is}");
    match right {
        Some(right) => BadInput::new(what, format!("its newest checkpoint is {}", right.display())),
        None => BadInput::new(what, help),
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
            (&[".metadata", "__0_0.distcp"], OF_PYTORCH),
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
                &["checkpoint_9/pytorch_model", "checkpoint_10/pytorch_model"],
                vec![],
                "checkpoint_10/pytorch_model",
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
