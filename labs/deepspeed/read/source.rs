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
use std::collections::BTreeMap;
use std::path::PathBuf;

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
            first.misnamed.append(&mut model.misnamed);
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

impl Source {
    /// Reads all files, except for the numbers of their tensors.
    pub fn read(options: &Options, watch: &dyn Watch) -> Result<Source, BadInput> {
        let files = names::list(&options.input)?;
        let paths: Vec<(&Rank, &PathBuf)> = files.models.iter().collect();
        watch.begin("1. Extracting ZeRO fragments", files.shards.len());
        let all = parallel(options.extract_workers, &paths, |(rank, path)| {
            Ok((rank.dp, Model::read(path, **rank)?))
        })?;
        let models = first_of_each(all)?;
        let tasks: Vec<(&Rank, &PathBuf)> = files.shards.iter().collect();
        let shards = parallel(options.extract_workers, &tasks, |(rank, path)| {
            let shard = Shard::read(path, **rank, files.dp, &models[rank.mp].groups);
            watch.advance();
            shard
        })?;
        watch.end();
        let stage = shards[0].stage;
        if let Some(other) = shards.iter().find(|shard| shard.stage != stage) {
            let first = shards[0].path.display();
            let how = format!("it is of stage {}, and {first} of stage {stage}", other.stage);
            return Err(broken(&other.path, how));
        }
        let mut shards = shards.into_iter();
        let by_mp = (0..files.mp).map(|_| shards.by_ref().take(files.dp).collect()).collect();
        let degrees = models[0].degrees.filter(|_| stage < 3);
        let (pp, tp) = match (degrees, files.ranks_of_layers()) {
            (Some(degrees), _) => degrees,
            (None, Some(tp)) if files.mp.is_multiple_of(tp) => (files.mp / tp, tp),
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
        })
    }

    /// The parts of all ranks of tensor parallelism, if each has one.
    pub fn of_all<T>(&self, name: &str, parts: BTreeMap<usize, T>) -> Result<Vec<T>, BadInput> {
        if let Some(tp) = (0..self.tp).find(|tp| !parts.contains_key(tp)) {
            let how = format!("tp rank {tp} of {} has nothing of {name}", self.tp);
            return Err(broken(&self.files.folder, how));
        }
        Ok(parts.into_values().collect())
    }

    /// The rules that join parts of tensor parallelism.
    pub fn rules(&self) -> Result<&Rules, BadInput> {
        // Only the first file's rules count; they are the same in all.
        let Model { path, rules, .. } = &self.models[0];
        if !rules.recorded && self.tp > 1 {
            let what = format!(
                "{} has no universal_checkpoint_info, which says how the parts of {} tp ranks are joined",
                path.display(),
                self.tp
            );
            let help = "save it again with a program that records universal_checkpoint_info";
            return Err(BadInput::new(what, help));
        }
        if !rules.unsupported.is_empty() && self.tp > 1 {
            return Err(broken(
                path,
                format!("DeepSpeed cannot say how it divided {}", rules.unsupported.join(", ")),
            ));
        }
        Ok(rules)
    }
}
