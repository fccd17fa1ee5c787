//! All files of a checkpoint: every rank's must be there.

use super::folder::{EMPTY, newest, nothing};
use super::kind::{Kind, Rank, kind, names};
use crate::{LEFT_OVER, broken};
use shardlab::checkpoint::cause;
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files by rank, in the order of numbers: as text, "10" would come before "2".
type OfRanks = BTreeMap<Rank, PathBuf>;

/// The files of a checkpoint.
#[derive(Debug)]
pub(crate) struct Files {
    pub folder: PathBuf,
    /// Model states. In stage 3 each rank has its own; otherwise `dp` is 0.
    pub models: OfRanks,
    /// Slices of the optimizer's state.
    pub shards: OfRanks,
    /// The layers of a pipeline.
    pub layers: OfRanks,
    pub dp: usize,
    pub mp: usize,
}

impl Files {
    /// Ranks of tensor parallelism, if the files of a pipeline's layers say it.
    pub fn ranks_of_layers(&self) -> Option<usize> {
        sizes(&self.layers).map(|(ranks, _)| ranks)
    }
}

/// Lists the files of the checkpoint in `folder`. Every rank's file must be there.
pub(crate) fn list(folder: &Path) -> Result<Files, BadInput> {
    if let Err(error) = std::fs::read_dir(folder) {
        let mut help = EMPTY[1].to_string();
        if let Some(newest) = folder.parent().and_then(newest) {
            let newest = newest.display();
            help = format!("the newest folder beside it that has optimizer states is {newest}");
        }
        let what = format!("cannot read the folder {}: {error}", folder.display());
        return Err(BadInput::new(what, cause::unread(&error, &help)));
    }
    let mut files = BTreeMap::<Kind, OfRanks>::new();
    for name in names(folder) {
        let path = folder.join(&name);
        let Some((kind, rank)) = kind(&name) else { continue };
        if kind == Kind::Expert {
            let what = format!("{} is a file of experts", path.display());
            let help = "experts are divided among ranks in their own way, which is not supported";
            return Err(BadInput::new(what, help));
        }
        let earlier = files.entry(kind).or_default().insert(rank, path.clone());
        // These names have no rank.
        let earlier = earlier.filter(|_| !matches!(kind, Kind::Old | Kind::Weights));
        if let Some(earlier) = earlier {
            let error = broken(&path, format!("{} has the same rank", earlier.display()));
            return Err(BadInput { help: LEFT_OVER.replace("of more ranks ", ""), ..error });
        }
    }
    let mut of = |kind| files.remove(&kind).unwrap_or_default();
    let shards = of(Kind::Shard);
    let Some((dp, mp)) = sizes(&shards) else {
        return Err(nothing(folder));
    };
    complete(folder, &shards, dp, mp, "optimizer's")?;
    // Only in stage 3 each rank has model states.
    let mut models = of(Kind::Model);
    let mut of_each = 1;
    if models.is_empty() {
        models = of(Kind::ModelOfRank);
        of_each = dp;
    }
    let (ranks, states) = sizes(&models).unwrap_or((0, 0));
    if (ranks, states) != (of_each, mp) {
        let how = format!(
            "it has optimizer states of {dp} x {mp} ranks, and model states of {ranks} x {states}"
        );
        return Err(BadInput { help: LEFT_OVER.into(), ..broken(folder, how) });
    }
    complete(folder, &models, of_each, mp, "model's")?;
    let layers = of(Kind::Layer);
    Ok(Files { folder: folder.to_path_buf(), models, shards, layers, dp, mp })
}

/// Ranks of data parallelism, and of the rest.
fn sizes(files: &OfRanks) -> Option<(usize, usize)> {
    let largest = |of: fn(&Rank) -> usize| files.keys().map(of).max();
    Some((largest(|rank| rank.dp)? + 1, largest(|rank| rank.mp)? + 1))
}

fn complete(
    folder: &Path,
    files: &OfRanks,
    dp: usize,
    mp: usize,
    of: &str,
) -> Result<(), BadInput> {
    let mut ranks = (0..mp).flat_map(|mp| (0..dp).map(move |dp| Rank { mp, dp }));
    let Some(Rank { mp: m, dp: d }) = ranks.find(|rank| !files.contains_key(rank)) else {
        return Ok(());
    };
    let more = match dp * mp - files.len() {
        1 => String::new(),
        all => format!(" and {} more", all - 1),
    };
    let how =
        format!("the {of} state of rank {d} (mp rank {m}) is missing{more}, of {dp} x {mp} ranks");
    Err(broken(folder, how))
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
