//! A job that ends, and goes on from its checkpoint.

use super::broken::Break;
use super::job::{Job, params};
use anyhow::{Context, Result};
use shardlab::checkpoint::{Checkpoints, Claim, Resume};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::same_bits;
use shardlab::parallel::Strategy;
use shardlab::train::Training;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Steps before the checkpoint.
const BEFORE: usize = 2;

/// How the name of a checkpoint's folder begins.
const FOLDER: &str = "resumed-";

/// How many parameters a job has not got back bit by bit, on all ranks together. `dir` has the
/// checkpoint meanwhile.
///
/// # Errors
/// If a pass, a message or a file fails.
pub fn resumed(job: &Job, strategy: &Strategy, world: &Comm, dir: &Path) -> Result<usize> {
    // Of this run alone, whatever else runs here.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut number = [now.as_nanos() as u64];
    world.broadcast(&mut number, 0)?;
    if world.rank() == 0 {
        remove_left(dir);
    }
    let dir = dir.join(format!("{FOLDER}{}", number[0]));
    let _removed = Removed(Some(&dir).filter(|_| world.rank() == 0));
    let mut first = job.begin(strategy, world)?.training;
    let checkpoints = Checkpoints::new(&dir, 1, first.job(job.text), world).scratch();
    for step in 0..BEFORE {
        first.step(job.text, step)?;
    }
    let folder = checkpoints.save(BEFORE, &mut first.zero, &())?;
    let mut second = job.begin(strategy, world)?.training;
    let found = checkpoints.resume::<()>(&Resume::Path(folder), &mut second.zero)?;
    found.context("the checkpoint that was saved is not there")?;
    let [saved, mut loaded] = [values(&mut first)?, values(&mut second)?];
    let specs = params(&second).specs();
    if job.broken == Some(Break::OneRanksExperts)
        && let Some(experts) = second.replicas.experts()
    {
        // What every rank reads is what the first one wrote.
        for spec in specs.iter().filter(|spec| spec.whole.part.is_expert()) {
            experts.broadcast(&mut loaded[spec.range()], 0)?;
        }
    }
    let differs = |range: Range<usize>| !same_bits(&saved[range.clone()], &loaded[range]);
    let lost = specs.iter().filter(|spec| differs(spec.range())).count() as u64;
    let lost = world.reduced(lost, Reduce::Sum)?;
    drop(checkpoints);
    Ok(lost as usize)
}

/// A folder that goes when this does, also where a disk was full.
struct Removed<'a>(Option<&'a PathBuf>);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        self.0.map(|folder| std::fs::remove_dir_all(folder).ok());
    }
}

/// Removes the folders of runs that were killed.
fn remove_left(dir: &Path) {
    for folder in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_ours = folder.file_name().to_string_lossy().starts_with(FOLDER);
        if is_ours && Claim::is_left(&folder.path()) {
            std::fs::remove_dir_all(folder.path()).ok();
        }
    }
}

/// This rank's parameters in f32.
fn values(training: &mut Training) -> Result<Vec<f32>> {
    let Training { zero, stages, .. } = training;
    zero.whole(|| Ok(stages.chunks[0].params.values().to_vec()))
}
