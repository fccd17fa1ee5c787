//! One line per step in a file beside the checkpoints, from which the next attempt tells what a
//! kill has cost.

use serde::{Deserialize, Serialize};
use shardlab::checkpoint::Checkpoints;
use shardlab::files;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A step that rank 0 has finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    /// The run, because a folder may have checkpoints of more than one.
    #[serde(default)]
    run: String,
    step: usize,
    seconds: f64,
    /// The time of day, because the next attempt is a different process.
    at: f64,
}

/// The work that a checkpoint does not have, and that is done again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lost {
    /// The last step that was made; as the checkpoint's step if nothing was lost.
    pub last: usize,
    /// The time that the lost steps took.
    pub seconds: f64,
    /// Seconds since the last step.
    pub down: f64,
}

/// Bytes of the file. A million steps take 80 of them each.
const LINES: u64 = 1 << 30;

/// The file, and the run that writes to it.
pub struct Progress {
    path: PathBuf,
    run: String,
}

impl Progress {
    pub fn of(all: &Checkpoints) -> Progress {
        Progress { path: all.dir.join("progress.jsonl"), run: all.run() }
    }

    /// Appends a step. The operating system has the line when this returns, so it survives a kill.
    /// A line that cannot be written is only missing from the next attempt's report.
    pub fn add(&self, step: usize, seconds: f64) {
        let line = serde_json::json!(Line { run: self.run.clone(), step, seconds, at: now() })
            .to_string()
            + "\n";
        let append = || -> io::Result<()> {
            std::fs::create_dir_all(self.path.parent().unwrap_or(Path::new(".")))?;
            // Through a link, lines would be added to a file elsewhere.
            if self.path.is_symlink() {
                std::fs::remove_file(&self.path)?;
            }
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?
                .write_all(line.as_bytes())
        };
        append().ok();
    }

    /// Forgets the steps of an earlier run.
    pub fn clear(&self) {
        std::fs::remove_file(&self.path).ok();
    }

    /// The last attempt's steps after step `from`: of this run if it was resumed, and otherwise of
    /// whatever ran before. `None`: the file has no step.
    pub fn lost(&self, from: usize, resumed: bool) -> Option<Lost> {
        let run = Some(self.run.as_str()).filter(|_| resumed);
        lost(&files::text(&self.path, LINES).ok()?, run, from, now())
    }
}

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |time| time.as_secs_f64())
}

fn lost(text: &str, run: Option<&str>, from: usize, now: f64) -> Option<Lost> {
    // A kill may have cut the last line off.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let lines: Vec<Line> = lines.filter(|line| run.is_none_or(|run| line.run == run)).collect();
    let last = lines.last()?;
    let mut lost = Lost {
        last: last.step.max(from),
        seconds: 0.0,
        down: (now - last.at).max(0.0),
    };
    let mut next = usize::MAX;
    // An earlier attempt ends where the numbers rise.
    for line in lines.iter().rev().take_while(|line| line.step > from) {
        if line.step >= next {
            break;
        }
        next = line.step;
        lost.seconds += line.seconds;
    }
    Some(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_attempts_steps_after_the_checkpoint_are_lost() {
        let steps = |steps: &[usize]| {
            let lines = steps
                .iter()
                .map(|step| format!("{{\"step\":{step},\"seconds\":0.5,\"at\":{}}}\n", 100 + step));
            lines.collect::<String>()
        };
        let cut = steps(&[1, 2, 3, 4, 5]) + "{\"step\":6,\"sec";
        assert_eq!(lost(&cut, None, 2, 107.0), Some(Lost { last: 5, seconds: 1.5, down: 2.0 }));
        assert_eq!(lost(&cut, None, 5, 106.0), Some(Lost { last: 5, seconds: 0.0, down: 1.0 }));
        // A second attempt continued after step 2 and died sooner; a third begins after step 2,
        // too.
        let twice = steps(&[1, 2, 3, 4, 5, 3]);
        assert_eq!(lost(&twice, None, 2, 104.0), Some(Lost { last: 3, seconds: 0.5, down: 1.0 }));
        assert_eq!(lost("", None, 2, 104.0), None);
        // The lines of a different run in the same folder are not this run's.
        let two = "{\"run\":\"a\",\"step\":3,\"seconds\":0.5,\"at\":103}\n".to_string() + &twice;
        assert_eq!(
            lost(&two, Some("a"), 2, 104.0),
            Some(Lost { last: 3, seconds: 0.5, down: 1.0 })
        );
        assert_eq!(lost(&two, Some("b"), 2, 104.0), None);
    }
}
