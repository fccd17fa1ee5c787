//! The reader's progress so far: `progress.json` in the reader's folder.

use super::attempt::{Attempt, Outcome};
use super::desk::{Desk, refusal};
use kit::Exercise;
use kit::check::Figure;
use kit::predict;
use kit::reader::now;
use serde::{Deserialize, Serialize};
use shardlab::error::BadInput;
use shardlab::{files, sha256};
use std::collections::BTreeMap;
use std::path::Path;

/// All exercises that the reader has touched, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress(BTreeMap<String, Record>);

/// The record of one exercise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Different versions that were checked, without the untouched blank, up to the first that
    /// solved the exercise.
    pub tries: usize,
    /// Hints that were read.
    pub hints: usize,
    /// The hash of the last version that solved the exercise.
    pub solution: Option<String>,
    /// The hash of the last version that was checked.
    pub checked: Option<String>,
    /// The outcome of the last check.
    pub outcome: Option<Outcome>,
    /// The claim that did not hold in the last check, or the empty string.
    pub stuck_at: String,
    /// The best figures of all versions that solved the exercise.
    pub figures: Vec<Figure>,
    /// The time of the last check, in seconds since 1970.
    pub when: u64,
}

/// The reader's standing in an exercise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is only the blank, or nothing.
    Open,
    /// The reader has changed the blank.
    Begun,
    Solved,
}

impl Progress {
    /// Reads the reader's file. Without a file there is no progress.
    pub fn read(desk: &Desk) -> Result<Progress, BadInput> {
        let path = desk.my.join(FILE);
        let text = match files::text(&path, files::LIST) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Progress::default());
            }
            text => text.map_err(|error| refusal("read", &path, &error))?,
        };
        serde_json::from_str(&text).map_err(|error| {
            let what = format!("{} is not what the workbook wrote: {error}", path.display());
            BadInput::new(what, "delete it to start a new record; your exercises stay as they are")
        })
    }

    /// Reads the reader's file, changes one exercise's record, and writes the file.
    pub fn change(
        desk: &Desk,
        exercise: &Exercise,
        change: impl FnOnce(&mut Record),
    ) -> Result<Record, BadInput> {
        let _alone = predict::alone_in(&desk.my);
        let mut progress = Progress::read(desk)?;
        let record = progress.0.entry(exercise.name.clone()).or_default();
        change(record);
        let record = record.clone();
        let text = serde_json::to_string_pretty(&progress).expect("a map of plain records");
        desk.write(&desk.my.join(FILE), text.as_bytes())?;
        Ok(record)
    }

    /// The exercise's record so far.
    pub fn of(&self, exercise: &Exercise) -> Record {
        self.0.get(&exercise.name).cloned().unwrap_or_default()
    }

    /// The reader's standing in `exercise`.
    pub fn standing(&self, desk: &Desk, exercise: &Exercise) -> Standing {
        let mine = hash(&desk.mine(exercise));
        if self.has_solved(exercise) {
            Standing::Solved
        } else if mine.is_none() || mine == hash(&desk.blank(exercise)) {
            Standing::Open
        } else {
            Standing::Begun
        }
    }

    /// Whether the reader has ever solved `exercise`.
    pub fn has_solved(&self, exercise: &Exercise) -> bool {
        self.of(exercise).solution.is_some()
    }
}

impl Record {
    /// Records a check of the version with the hash `checked`. `blank` is the hash of the blank.
    pub fn take(&mut self, attempt: &Attempt, checked: String, blank: Option<&String>) {
        let new = Some(&checked) != self.checked.as_ref() && Some(&checked) != blank;
        if self.solution.is_none() && new {
            self.tries += 1;
        }
        if attempt.outcome == Outcome::Solved {
            self.solution = Some(checked.clone());
            for figure in &attempt.figures {
                match self.figures.iter_mut().find(|best| best.what == figure.what) {
                    // The target may have changed with the exercise.
                    Some(best) => {
                        *best = Figure { got: best.got.min(figure.got), ..figure.clone() }
                    }
                    None => self.figures.push(figure.clone()),
                }
            }
        }
        self.checked = Some(checked);
        self.outcome = Some(attempt.outcome);
        self.stuck_at = attempt.stuck_at().into();
        self.when = now();
    }
}

const FILE: &str = "progress.json";

/// A file's SHA-256 as hexadecimal digits, if it can be read.
pub(super) fn hash(path: &Path) -> Option<String> {
    Some(sha256::hex(&files::read(path, files::LIST).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Different versions up to the first right one are tries, and the blank is none. The best
    /// figures stay.
    #[test]
    fn a_record_counts_tries_and_keeps_the_best_figures() {
        let blank = "blank".to_string();
        let mut record = Record::default();
        let mut take = |version: &str, outcome, got| {
            let figures = vec![Figure { what: "bytes".into(), got, target: 5 }];
            let attempt = Attempt { figures, ..Attempt::new(outcome, "") };
            record.take(&attempt, version.into(), Some(&blank));
            (record.tries, record.figures.first().map(|best| best.got))
        };
        assert_eq!(take("blank", Outcome::Unfinished, 0), (0, None));
        assert_eq!(take("a", Outcome::Wrong, 0), (1, None));
        assert_eq!(take("a", Outcome::Wrong, 0), (1, None));
        assert_eq!(take("b", Outcome::Solved, 7), (2, Some(7)));
        assert_eq!(take("c", Outcome::Solved, 5), (2, Some(5)));
        assert_eq!(take("d", Outcome::Solved, 6), (2, Some(5)));
    }
}
