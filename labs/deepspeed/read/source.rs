//! All files of a checkpoint, read and compared with each other.

use super::kind::Rank;
use super::model::Model;
use super::names::{self, Files};
use super::shard::Shard;
use crate::know::Rules;
use crate::options::{Options, Watch};
use crate::workers::parallel;
use crate::{LEFT_OVER, broken};
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};

/// All files of a checkpoint, read except for their tensors.
pub(crate) struct Source {
    /// What the conversion was asked for.
    pub options: Options,
    pub files: Files,
    pub stage: usize,
    pub tp: usize,
    pub pp: usize,
    /// One for each rank of tensor and pipeline parallelism.
    pub models: Vec<Model>,
    /// By `mp`, then by `dp`.
    pub shards: Vec<Vec<Shard>>,
    /// Files that name a different rank inside than their name says.
    pub misnamed: Vec<String>,
    /// The rules of a checkpoint without any.
    no_rules: Rules,
}

/// The model states of the first rank of each `mp`. In stage 3 all ranks have some, which must not
/// contradict each other, and each has its part of the frozen weights.
fn first_of_each(all: Vec<(usize, Model)>) -> Result<Vec<Model>, BadInput> {
    let mut models: Vec<Model> = Vec::new();
    for (dp, mut model) in all {
        let first = models.last_mut().filter(|_| dp > 0);
        let mut lists_others = false;
        if let Some(first) = first {
            lists_others = model.groups != first.groups || model.frozen != first.frozen;
            for (name, fragments) in &mut model.fragments {
                first.fragments.entry(name.clone()).or_default().append(fragments);
            }
            first.unknown.append(&mut model.unknown);
        }
        let first = models.first().unwrap_or(&model);
        if lists_others || model.steps != first.steps {
            let how = format!(
                "it lists different parameters, or is of a different step, than {}",
                first.path.display()
            );
            return Err(broken(&model.path, how));
        }
        if dp == 0 {
            models.push(model);
        }
    }
    Ok(models)
}

/// What is wrong with a file that names a different rank inside.
fn misnamed(path: &Path, rank: Rank, named: Option<Rank>) -> Option<String> {
    let words = |Rank { mp, dp }: Rank| format!("rank {dp} (mp rank {mp})");
    let named = named.filter(|named| *named != rank)?;
    Some(format!(
        "{} was written for {}, and is named for {}",
        path.display(),
        words(named),
        words(rank)
    ))
}

impl Source {
    /// Reads all files, except for the numbers of their tensors.
    pub fn read(options: &Options, watch: &dyn Watch) -> Result<Source, BadInput> {
        let files = names::list(&options.input)?;
        let paths: Vec<(&Rank, &PathBuf)> = files.models.iter().collect();
        watch.begin("1. Extracting ZeRO fragments", files.shards.len());
        let all = parallel(options.extract_workers, &paths, |(rank, path)| {
            Ok((rank.dp, Model::read(path)?))
        })?;
        let named = paths
            .iter()
            .zip(&all)
            .filter_map(|((rank, path), (_, model))| misnamed(path, **rank, model.named));
        let mut misnamed: Vec<String> = named.collect();
        let models = first_of_each(all)?;
        let tasks: Vec<(&Rank, &PathBuf)> = files.shards.iter().collect();
        let shards = parallel(options.extract_workers, &tasks, |(rank, path)| {
            let shard = Shard::read(path, **rank, files.dp, &models[rank.mp].groups);
            watch.advance();
            shard
        })?;
        watch.end();
        let named = |shard: &Shard| self::misnamed(&shard.path, shard.rank, shard.named);
        misnamed.extend(shards.iter().filter_map(named));
        let stage = shards[0].stage;
        if let Some(other) = shards.iter().find(|shard| shard.stage != stage) {
            let first = shards[0].path.display();
            let how = format!("it is of stage {}, and {first} of stage {stage}", other.stage);
            return Err(broken(&other.path, how));
        }
        let mut by_mp: Vec<Vec<Shard>> = (0..files.mp).map(|_| Vec::new()).collect();
        for shard in shards {
            by_mp[shard.rank.mp].push(shard);
        }
        let degrees = models[0].degrees.filter(|_| stage < 3);
        let (pp, tp) = match (degrees, files.layer_ranks) {
            (Some(degrees), _) => degrees,
            (None, Some(tp)) if tp > 0 && files.mp.is_multiple_of(tp) => (files.mp / tp, tp),
            _ => (1, files.mp),
        };
        if pp.checked_mul(tp) != Some(files.mp) {
            let how =
                format!("it has {} files of model states, and records {pp} x {tp} ranks", files.mp);
            return Err(BadInput { help: LEFT_OVER.into(), ..broken(&files.folder, how) });
        }
        Ok(Source {
            options: options.clone(),
            files,
            stage,
            tp,
            pp,
            models,
            shards: by_mp,
            misnamed,
            no_rules: Rules::default(),
        })
    }

    /// The rules that join parts of tensor parallelism.
    pub fn rules(&self) -> Result<&Rules, BadInput> {
        let path = &self.models[0].path;
        // Only the first file's rules count; they are the same in all.
        let rules = match &self.models[0].rules {
            Some(rules) => rules,
            None if self.tp == 1 => &self.no_rules,
            None => {
                let what = format!(
                    "{} has no universal_checkpoint_info, which says how the parts of {} tp ranks are joined",
                    path.display(),
                    self.tp
                );
                let help = "save it again with a program that records universal_checkpoint_info";
                return Err(BadInput::new(what, help));
            }
        };
        if !rules.unsupported.is_empty() && self.tp > 1 {
            return Err(broken(
                path,
                format!("DeepSpeed cannot say how it divided {}", rules.unsupported.join(", ")),
            ));
        }
        Ok(rules)
    }
}
