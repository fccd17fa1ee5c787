//! One reader's document: what `--json` prints, and what `submit` puts into a room's folder.

use super::attempt::{Attempt, Outcome};
use super::desk::Desk;
use super::progress::{Progress, Record, Standing};
use kit::Course;
use kit::predict::{self, Predicted};
use kit::reader::now;
use serde::{Deserialize, Serialize};
use shardlab::error::{BadInput, printable};
use shardlab::files;
use std::collections::BTreeMap;
use std::path::Path;

/// The document of `--json`: one reader's standing in every exercise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The version of the document's format.
    pub version: u32,
    /// The name that the variable SHARDLAB_NAME has, or else the user's. It may be empty.
    pub who: String,
    /// Seconds since 1970.
    pub when: u64,
    /// In order.
    pub exercises: Vec<Entry>,
    /// What the reader said before labs ran, by lab.
    #[serde(default)]
    pub predictions: BTreeMap<String, Predicted>,
}

/// One exercise in a [`Document`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub name: String,
    pub solved: bool,
    /// Whether the reader has changed the blank.
    pub begun: bool,
    #[serde(flatten)]
    pub record: Record,
    /// The check that was made for this document, if there was one.
    pub check: Option<Attempt>,
}

impl Document {
    /// The reader's standing, with the checks that were just made.
    ///
    /// # Errors
    /// If what the reader predicted cannot be read.
    pub fn new(
        course: &Course,
        desk: &Desk,
        progress: &Progress,
        checks: &[(String, Attempt)],
    ) -> Result<Document, BadInput> {
        let entry = |exercise: &super::Exercise| Entry {
            name: exercise.name.clone(),
            solved: progress.has_solved(exercise),
            begun: progress.standing(desk, exercise) != Standing::Open,
            record: progress.of(exercise),
            check: checks
                .iter()
                .find(|(name, _)| *name == exercise.name)
                .map(|(_, attempt)| attempt.clone()),
        };
        Ok(Document {
            version: 1,
            who: kit::reader::name(),
            when: now(),
            exercises: course.exercises().map(entry).collect(),
            predictions: predict::kept(&desk.my)?,
        })
    }

    pub(super) fn read(path: &Path) -> anyhow::Result<Document> {
        /// A hundred times what a reader has.
        const MOST: u64 = 4 << 20;
        let text = files::text(path, MOST)?;
        Ok(serde_json::from_str(&text)?)
    }

    pub(super) fn solved(&self) -> usize {
        self.exercises.iter().filter(|entry| entry.solved).count()
    }

    /// The reader's current exercise: of the unsolved ones the last that was checked, or else the
    /// first.
    pub(super) fn at(&self) -> Option<&Entry> {
        let open = || self.exercises.iter().filter(|entry| !entry.solved);
        open()
            .filter(|entry| entry.record.when > 0)
            .max_by_key(|entry| entry.record.when)
            .or_else(|| open().next())
    }
}

impl Entry {
    /// The claim at which the reader is stuck.
    pub(super) fn stuck_at(&self) -> String {
        let Record { outcome, stuck_at, .. } = &self.record;
        match outcome {
            None | Some(Outcome::NotBegun) => "not checked yet".into(),
            Some(Outcome::Unfinished) => "not written yet".into(),
            Some(Outcome::DoesNotCompile) => "does not compile".into(),
            Some(Outcome::DoesNotFit) => "the check cannot call it".into(),
            Some(Outcome::Solved) => String::new(),
            Some(Outcome::Wrong) => stuck_at.clone(),
            Some(Outcome::Failed) => format!("an error in: {stuck_at}"),
            Some(Outcome::Panicked) => format!("a panic in: {stuck_at}"),
            Some(Outcome::Endless) => format!("never ends in: {stuck_at}"),
            Some(Outcome::TooLarge) => format!("too much memory in: {stuck_at}"),
            Some(Outcome::Ended) => format!("the process ends in: {stuck_at}"),
        }
    }
}

/// What a participant's file or its name says, for the instructor's terminal: in one line, with its
/// control characters shown and not obeyed. Anyone may write into the folder.
pub(super) fn harmless(text: &str) -> String {
    const MOST: usize = 400;
    let text: String = text.chars().take(MOST).collect();
    printable(&text).replace('\n', "\\n")
}
