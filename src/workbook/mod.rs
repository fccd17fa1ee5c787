//! The exercises: what the `workbook` program does.
//!
//! A reader writes the part of a lab that is its lesson, and a check tells how far it is right. Adding an exercise takes
//! an entry in `labs/labs.toml` and three files of its name: what it begins with in `labs/exercises/`, an answer in
//! `labs/solutions/`, the program that checks it in `labs/checks/`.
//!
//! Reading order: `course.rs` (the labs and their exercises, in order), `lesson.rs` (a lab's first and last lines),
//! `desk.rs` (whose files are where), `check.rs` (what a check is made of), `attempt.rs` (one check, by `compile.rs` and
//! `child.rs`), `progress.rs` (what the reader has done), `screens.rs` (what they see), `report.rs` (many readers at a
//! glance).

mod attempt;
pub mod check;
mod child;
mod compile;
mod course;
mod desk;
mod lesson;
mod progress;
mod report;
mod screens;

pub use attempt::{Attempt, Finding, Outcome};
pub use course::{Course, Exercise, Lab};
pub use desk::Desk;
pub use lesson::Lesson;
pub use progress::{Progress, Record, Standing};
pub use report::{Document, Entry, Readers};
pub use screens::{attempt as show_attempt, command, hints, map, solution};

use crate::error::BadInput;
use crate::show::Screen;

/// The workbook as it is for one reader now.
pub struct Workbook {
    pub course: Course,
    pub desk: Desk,
    library: compile::Library,
}

impl Workbook {
    /// Finds all that checks need.
    pub fn open() -> Result<Workbook, BadInput> {
        let desk = Desk::find()?;
        Ok(Workbook { course: Course::read()?, desk, library: compile::Library::find()? })
    }

    /// The first exercise that the reader has not solved.
    pub fn next(&self) -> Result<Option<&Exercise>, BadInput> {
        self.next_of(self.course.exercises())
    }

    /// The first of these that the reader has not solved; an optional one only if the reader has begun it.
    pub fn next_of<'a>(&self, of: impl IntoIterator<Item = &'a Exercise>) -> Result<Option<&'a Exercise>, BadInput> {
        let progress = Progress::read(&self.desk)?;
        let wanted = |exercise: &&Exercise| !exercise.optional || self.desk.mine(exercise).exists();
        Ok(of.into_iter().filter(wanted).find(|exercise| !progress.has_solved(exercise)))
    }

    /// Checks an exercise and writes down how it went.
    pub fn check(&self, screen: &Screen, exercise: &Exercise) -> Result<Attempt, BadInput> {
        let Some(checked) = progress::hash(&self.desk.mine(exercise)) else {
            return Ok(Attempt::new(Outcome::NotBegun, "There is nothing to check yet."));
        };
        let attempt = Attempt::make(&self.library, screen, &self.desk, exercise)?;
        let blank = progress::hash(&self.desk.blank(exercise));
        Progress::change(&self.desk, exercise, |record| record.take(&attempt, checked, blank.as_ref()))?;
        Ok(attempt)
    }
}
