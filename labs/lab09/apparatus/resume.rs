//! Train, save, convert, resume: one run of a job.

use anyhow::{Context, Result};
use kit::progress;
use shardlab::checkpoint::Checkpoints;
use shardlab::checkpoint::universal::{self, INDEX, Universal};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::error::BadInput;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};
use std::ops::Range;
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
    pub job: Strategy,
    pub run: Run,
    /// Whether it has loaded the parameters and moments that were saved, bit by bit.
    pub same: bool,
}

/// Takes steps. Returns their losses, mean over data ranks.
fn train(training: &mut Training, text: &[u32], steps: Range<usize>) -> Result<Vec<f64>> {
    let mut losses = Vec::new();
    let last = steps.end;
    for step in steps {
        let Training { strategy, mesh, .. } = &training;
        progress(mesh.world(), || format!("{strategy}: step {} of {last}", step + 1));
        losses.push(training.step(text, step)?.loss);
    }
    training.mesh.world().all_reduce(&mut losses, Reduce::Mean)?;
    Ok(losses)
}

/// Every rank writes the slices that it holds. Then one process puts the parameters together.
fn save(training: &mut Training, text: &[u32], step: usize, to: &Folders) -> Result<PathBuf> {
    let job = training.job(text);
    let comm = training.mesh.world();
    let all = Checkpoints::new(&to.save, 1, job, comm).scratch();
    let saved = all.save(step, &mut training.zero, &step)?;
    let merged = if comm.rank() == 0 {
        universal::merge(&saved, &to.universal).map(drop)
    } else {
        Ok(())
    };
    comm.barrier()?;
    merged?;
    Ok(saved)
}

/// Trains `save_after` steps, saves, and trains on until `config.steps`: the run that nothing
/// interrupts.
pub fn begin(
    comm: &Comm,
    strategy: &Strategy,
    config: &Config,
    text: &[u32],
    save_after: usize,
    folders: &Folders,
) -> Result<Run> {
    let mut training = Training::new(config, strategy, comm)?;
    train(&mut training, text, 0..save_after)?;
    let saved = save(&mut training, text, save_after, folders)?;
    let losses = train(&mut training, text, save_after..config.steps)?;
    Ok(Run { losses, saved })
}

/// Continues from the universal checkpoint `from`. Before the first step, the ranks save what they
/// have loaded to `again`, so that it can be compared. A run that `forgets` takes the data of the
/// first steps once more.
pub fn resume(
    comm: &Comm,
    strategy: &Strategy,
    config: &Config,
    text: &[u32],
    (from, again): (&Path, &Folders),
    forgets: bool,
) -> Result<Run> {
    let mut training = Training::new(config, strategy, comm)?;
    let universal = Universal::open(from)?;
    let step: usize = universal.restore(comm, &mut training.zero)?;
    let saved = save(&mut training, text, step, again)?;
    let steps = if forgets {
        0..config.steps - step
    } else {
        step..config.steps
    };
    let losses = train(&mut training, text, steps)?;
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
