//! Train, save, convert, resume: one run of a job.

use super::Job;
use anyhow::{Context, Result};
use kit::progress;
use shardlab::checkpoint::universal::{self, INDEX, Universal};
use shardlab::checkpoint::{Checkpoints, Job as Saved};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::error::BadInput;
use shardlab::mesh::Mesh;
use shardlab::parallel::ZeroConfig;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Pipelined};
use std::path::{Path, PathBuf};

/// The folders of a run.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The ranks' own files.
    pub save: PathBuf,
    /// Whole parameters.
    pub universal: PathBuf,
}

impl Folders {
    /// The folders of the run called `name`, below `dir`.
    pub fn of(dir: &Path, name: &str) -> Folders {
        Folders {
            save: dir.join(name),
            universal: dir.join(format!("{name}-universal")),
        }
    }

    /// Refuses a job's folder with anything that no run of this lab has written. A run removes what
    /// an earlier one left.
    pub fn ensure_own(dir: &Path) -> Result<(), BadInput> {
        for path in entries(dir) {
            if is_job(&path) && !is_own(&path) {
                let what =
                    format!("{} is in the way, and was not written by this lab", path.display());
                return Err(BadInput::new(
                    what,
                    "move it away, or name a different folder with --out",
                ));
            }
        }
        Ok(())
    }

    /// Removes what an earlier run has left in `dir`.
    pub fn remove(dir: &Path) -> Result<()> {
        for path in entries(dir).filter(|path| is_job(path) && is_own(path)) {
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a path has the name of a job's folder.
fn is_job(path: &Path) -> bool {
    let name = name(path);
    let number = name
        .strip_prefix("job-")
        .map(|rest| rest.strip_suffix("-universal").unwrap_or(rest));
    number.is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Whether a job's folder has only what a job writes.
fn is_own(path: &Path) -> bool {
    let universal = name(path).ends_with("-universal");
    let known = |name: &str| {
        if universal {
            [INDEX, "zero"].contains(&name)
        } else {
            ["latest", "writer.lock"].contains(&name)
                || name.starts_with("save-")
                || name.starts_with('.')
        }
    };
    path.is_dir() && !path.is_symlink() && entries(path).all(|entry| known(&name(&entry)))
}

/// The losses of a run, and its files.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The loss of each step after the save, mean over data ranks.
    pub losses: Vec<f64>,
    /// The folder of the ranks' files.
    pub saved: PathBuf,
}

impl Run {
    /// The largest difference of two runs' losses.
    pub fn difference(&self, other: &Run) -> f64 {
        largest_difference(&self.losses, &other.losses)
    }

    /// Whether two runs' losses have the same bits.
    pub fn has_bits_of(&self, other: &Run) -> bool {
        same_bits(&self.losses, &other.losses)
    }
}

/// A job that continued.
#[derive(Clone, Debug)]
pub struct Resumed {
    pub job: Job,
    pub run: Run,
    /// Whether it has loaded the parameters and moments that were saved, bit by bit.
    pub same: bool,
}

/// One rank of a job: its part of the model, and how to save it.
struct Part<'a> {
    comm: &'a Comm,
    job: Job,
    config: Config,
    text: &'a [u32],
    pipelined: Pipelined,
}

impl<'a> Part<'a> {
    fn new(comm: &'a Comm, job: Job, config: Config, text: &'a [u32]) -> Result<Part<'a>> {
        let mesh = Mesh::new(comm, job.layout())?;
        let zero = ZeroConfig::new(job.stage, Precision::F32, config.adamw);
        let pipelined = Pipelined::new(&config, &mesh, &job.plan(&config), (false, 1), zero)?;
        Ok(Part { comm, job, config, text, pipelined })
    }

    /// Takes steps. Returns their losses, mean over data ranks.
    fn train(&mut self, steps: std::ops::Range<usize>) -> Result<Vec<f64>> {
        let mut losses = Vec::new();
        let last = steps.end;
        for step in steps {
            progress(self.comm, || format!("{}: step {} of {last}", self.job, step + 1));
            losses.push(self.pipelined.step(self.text, step)?.loss);
        }
        self.comm.all_reduce(&mut losses, Reduce::Mean)?;
        Ok(losses)
    }

    // ANCHOR: save
    /// Every rank writes the slices that it holds. Then one process puts the parameters together.
    fn save(&mut self, step: usize, folders: &Folders) -> Result<PathBuf> {
        let saved = Saved {
            shape: self.config.shape,
            seed: self.config.seed,
            ranks: self.comm.size(),
            layout: self.job.to_string(),
            settings: self.config.settings(self.text),
        };
        let all = Checkpoints::new(&folders.save, 1, saved, self.comm).scratch();
        let saved = all.save(step, &mut self.pipelined.zero, &step)?;
        let merged = if self.comm.rank() == 0 {
            universal::merge(&saved, &folders.universal).map(drop)
        } else {
            Ok(())
        };
        self.comm.barrier()?;
        merged?;
        Ok(saved)
    }
    // ANCHOR_END: save
}

/// Trains `save_after` steps, saves, and trains on until `config.steps`: the run that nothing
/// interrupts.
pub fn begin(
    comm: &Comm,
    job: Job,
    config: Config,
    text: &[u32],
    save_after: usize,
    folders: &Folders,
) -> Result<Run> {
    let mut part = Part::new(comm, job, config, text)?;
    part.train(0..save_after)?;
    let saved = part.save(save_after, folders)?;
    let losses = part.train(save_after..part.config.steps)?;
    Ok(Run { losses, saved })
}

/// Continues from the universal checkpoint `from`. Before the first step, the ranks save what they
/// have loaded to `again`, so that it can be compared. A run that `forgets` takes the data of the
/// first steps once more.
pub fn resume(
    comm: &Comm,
    job: Job,
    config: Config,
    text: &[u32],
    (from, again): (&Path, &Folders),
    forgets: bool,
) -> Result<Run> {
    let mut part = Part::new(comm, job, config, text)?;
    let universal = Universal::open(from)?;
    let step: usize = universal.restore(comm, &mut part.pipelined.zero)?;
    let saved = part.save(step, again)?;
    let steps = if forgets {
        0..part.config.steps - step
    } else {
        step..part.config.steps
    };
    let losses = part.train(steps)?;
    Ok(Run { losses, saved })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;

    #[test]
    fn nan_and_missing_losses_are_differences() {
        let run = |losses: &[f64]| Run { losses: losses.to_vec(), ..Run::default() };
        let good = run(&[3.0, 2.0]);
        assert!(good.has_bits_of(&good) && good.difference(&good) == 0.0);
        assert!(!run(&[3.0, 2.5]).has_bits_of(&good) && run(&[3.0, 2.5]).difference(&good) == 0.5);
        for bad in damaged(&good.losses) {
            let bad = run(&bad);
            assert!(!bad.has_bits_of(&good) && bad.difference(&good).is_infinite(), "{bad:?}");
            assert!(!good.has_bits_of(&bad) && good.difference(&bad).is_infinite(), "{bad:?}");
        }
    }
}
