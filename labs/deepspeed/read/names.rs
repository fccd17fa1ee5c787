//! All files of a checkpoint: every rank's must be there.

use super::folder::{EMPTY, newest, nothing};
use super::kind::{Kind, Rank, kind};
use crate::{LEFT_OVER, broken};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a checkpoint. Ranks are in the order of their numbers: as text, "10" would come
/// before "2".
#[derive(Debug)]
pub(crate) struct Files {
    pub folder: PathBuf,
    /// Model states. In stage 3 each rank has its own; otherwise `dp` is 0.
    pub models: BTreeMap<Rank, PathBuf>,
    /// Slices of the optimizer's state.
    pub shards: BTreeMap<Rank, PathBuf>,
    /// Ranks of tensor parallelism, if the files of a pipeline's layers say it.
    pub layer_ranks: Option<usize>,
    /// The files of a pipeline's layers, with the layers' numbers.
    pub layers: Vec<(usize, PathBuf)>,
    pub dp: usize,
    pub mp: usize,
}

/// Lists the files of the checkpoint in `folder`. Every rank's file must be there.
pub(crate) fn list(folder: &Path) -> Result<Files, BadInput> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let help = match folder.parent().and_then(newest) {
            Some(newest) => format!(
                "the newest folder beside it that has optimizer states is {}",
                newest.display()
            ),
            None => EMPTY[1].to_string(),
        };
        BadInput::new(
            format!("cannot read the folder {}: {error}", folder.display()),
            cause::unread(&error, &help),
        )
    })?;
    let mut zero3 = BTreeMap::new();
    let mut plain = BTreeMap::new();
    let mut shards = BTreeMap::new();
    let mut layers = BTreeMap::<usize, usize>::new();
    let mut layer_files = Vec::new();
    let mut names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into())
        .collect();
    names.sort();
    for name in names {
        let path = folder.join(&name);
        let (rank, files) = match kind(&name) {
            Some(Kind::Model(rank)) if name.starts_with("mp_") => (rank, &mut plain),
            Some(Kind::Model(rank)) => (rank, &mut zero3),
            Some(Kind::Shard(rank)) => (rank, &mut shards),
            Some(Kind::Layer(layer)) => {
                *layers.entry(layer).or_default() += 1;
                layer_files.push((layer, path));
                continue;
            }
            Some(Kind::Expert) => {
                let what = format!("{} is a file of experts", path.display());
                let help =
                    "experts are divided among ranks in their own way, which is not supported";
                return Err(BadInput::new(what, help));
            }
            None => continue,
        };
        if let Some(earlier) = files.insert(rank, path.clone()) {
            let error = broken(&path, format!("{} has the same rank", earlier.display()));
            return Err(BadInput { help: LEFT_OVER.replace("of more ranks ", ""), ..error });
        }
    }
    let Some((dp, mp)) = sizes(&shards) else {
        return Err(nothing(folder));
    };
    complete(folder, &shards, dp, mp, "optimizer's")?;
    // Only in stage 3 each rank has model states.
    let (models, of_each) = if plain.is_empty() { (zero3, dp) } else { (plain, 1) };
    let (ranks, states) = sizes(&models).unwrap_or((0, 0));
    if (ranks, states) != (of_each, mp) {
        let how = format!(
            "it has optimizer states of {dp} x {mp} ranks, and model states of {ranks} x {states}"
        );
        return Err(BadInput { help: LEFT_OVER.into(), ..broken(folder, how) });
    }
    complete(folder, &models, of_each, mp, "model's")?;
    let layer_ranks = layers.get(&1).or(layers.values().next()).copied();
    Ok(Files {
        folder: folder.to_path_buf(),
        models,
        shards,
        layer_ranks,
        layers: layer_files,
        dp,
        mp,
    })
}

fn sizes(files: &BTreeMap<Rank, PathBuf>) -> Option<(usize, usize)> {
    let largest = |of: fn(&Rank) -> usize| files.keys().map(of).max();
    Some((largest(|rank| rank.dp)? + 1, largest(|rank| rank.mp)? + 1))
}

fn complete(
    folder: &Path,
    files: &BTreeMap<Rank, PathBuf>,
    dp: usize,
    mp: usize,
    of: &str,
) -> Result<(), BadInput> {
    // A single absurd number in a name must not become a long loop.
    let ranks = (0..mp).flat_map(|mp| (0..dp).map(move |dp| Rank { mp, dp }));
    let missing: Vec<Rank> = ranks.filter(|rank| !files.contains_key(rank)).take(5).collect();
    let Some(Rank { mp: m, dp: d }) = missing.first() else {
        return Ok(());
    };
    let count = match (dp * mp - files.len(), missing.len()) {
        (1, _) => String::new(),
        (all, _) => format!(" and {} more", all - 1),
    };
    Err(broken(
        folder,
        format!("the {of} state of rank {d} (mp rank {m}) is missing{count}, of {dp} x {mp} ranks"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        dir
    }

    #[test]
    fn ranks_are_in_the_order_of_their_numbers() {
        let names: Vec<String> = (0..12)
            .map(|dp| format!("bf16_zero_pp_rank_{dp}_mp_rank_00_optim_states.pt"))
            .collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["mp_rank_00_model_states.pt", "zero_to_fp32.py", "latest"]);
        let dir = folder(&names);
        let files = list(dir.path()).unwrap();
        assert_eq!((files.dp, files.mp, files.models.len()), (12, 1, 1));
        assert_eq!(
            files.shards.keys().map(|rank| rank.dp).collect::<Vec<_>>(),
            (0..12).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_folder_that_is_not_there_has_neighbours() {
        let dir = folder(&[]);
        let help = || list(&dir.path().join("global_step9")).unwrap_err().help;
        assert_eq!(help(), EMPTY[1]);
        let there = dir.path().join("global_step7");
        std::fs::create_dir(&there).unwrap();
        std::fs::write(there.join("zero_pp_rank_0_mp_rank_00_optim_states.pt"), "").unwrap();
        assert!(help().ends_with(&format!("that has optimizer states is {}", there.display())));
    }

    #[test]
    fn incomplete_folders_are_refused() {
        let shard = |dp, mp| format!("zero_pp_rank_{dp}_mp_rank_{mp:02}_optim_states.pt");
        let refused = |names: &[&str]| list(folder(names).path()).unwrap_err().what;
        let model = "mp_rank_00_model_states.pt";
        assert!(refused(&[model]).contains("was saved without ZeRO (stage 0)"));
        assert!(refused(&[&shard(0, 0)]).contains("1 x 1 ranks, and model states of 0 x 0"));
        assert!(
            refused(&[&shard(0, 0), &shard(2, 0), model])
                .contains("rank 1 (mp rank 0) is missing, of 3 x 1")
        );
        assert!(
            refused(&[&shard(0, 0), &shard(0, 1), model])
                .contains("1 x 2 ranks, and model states of 1 x 1")
        );
        assert!(
            refused(&[&shard(0, 0), "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", model])
                .contains("has the same rank")
        );
        assert!(
            refused(&[&shard(0, 0), &shard(999_999_999, 0), model])
                .contains("is missing and 999999997 more")
        );
        assert!(
            refused(&[&shard(0, 0), model, "layer_01_expert_0_mp_rank_00_model_states.pt"])
                .contains("experts")
        );
    }
}
