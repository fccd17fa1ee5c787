//! The exercises: what the `workbook` program does.
//!
//! A reader writes the part of a lab that is its lesson, and a check shows how much of it is right.
//! To add an exercise, write an entry in `labs/labs.toml` and four files of its name: in its lab's
//! folder the blank in `exercises/`, the solution in `solutions/`, and in `checks/` the program
//! that checks it, and the mistakes that it must tell apart (`.mistakes.toml`, read by tests, and
//! for the instructor's document).
//!
//! Reading order: `desk.rs` (the folders of all files), `shared_build.rs` (those of a build that
//! many use), `attempt.rs` (one check, by `compile.rs`, `toolchain.rs` and `child.rs`),
//! `progress.rs` (the reader's results), `screens.rs` and `command.rs` (the reader's screens),
//! `ladder.rs` (the scores of its rungs), `capstone.rs` (the reader's own trainer), `document.rs`
//! (one reader's results), `submit.rs` and `report.rs` (many readers in one table, or in the window
//! of `matrix.rs`), `solutions.rs` with `recognised.rs` (everything on paper, for those who teach),
//! `quiz.rs` (all that labs ask), `doctor.rs` (does this machine have what all of this needs?),
//! `serve.rs` with `pages.rs` (the book, with what its pages need to run labs), `explain/` (a job
//! of PyTorch that stands). `dev/` is for those who write labs.

mod attempt;
mod capstone;
mod child;
mod command;
mod compile;
mod desk;
pub mod dev;
mod doctor;
mod document;
mod explain;
mod ladder;
mod matrix;
mod pages;
mod progress;
pub mod quiz;
mod recognised;
mod report;
mod screens;
mod serve;
mod shared_build;
mod solutions;
mod submit;
mod toolchain;

pub use attempt::{Attempt, Finding, Outcome};
pub use capstone::run as train;
pub use command::command;
pub use desk::Desk;
pub use doctor::Health;
pub use document::{Document, Entry};
pub use explain::explain;
pub use ladder::picture as ladder;
pub use matrix::matrix;
pub use progress::{Progress, Record, Standing};
pub use report::Readers;
pub use screens::{attempt as show_attempt, hints, map, solution};
pub use serve::{built_book, serve};
pub use solutions::handout;
pub use submit::submit;

use kit::show::Screen;
use kit::{Course, Exercise};
use shardlab::error::BadInput;

/// The workbook, with one reader's files.
pub struct Workbook {
    pub course: Course,
    pub desk: Desk,
    library: compile::Library,
}

impl Workbook {
    /// Finds everything that checks need.
    pub fn open() -> Result<Workbook, BadInput> {
        let desk = Desk::find()?;
        Ok(Workbook {
            course: Course::read()?,
            desk,
            library: compile::Library::find()?,
        })
    }

    /// The first exercise that the reader has not solved.
    pub fn next(&self) -> Result<Option<&Exercise>, BadInput> {
        self.next_of(self.course.exercises())
    }

    /// The first of `of` that the reader has not solved. Optional exercises count only if the
    /// reader has begun them.
    pub fn next_of<'a>(
        &self,
        of: impl IntoIterator<Item = &'a Exercise>,
    ) -> Result<Option<&'a Exercise>, BadInput> {
        let progress = Progress::read(&self.desk)?;
        let wanted = |exercise: &&Exercise| !exercise.optional || self.desk.mine(exercise).exists();
        Ok(of.into_iter().filter(wanted).find(|exercise| !progress.has_solved(exercise)))
    }

    /// Checks an exercise and records the result. A record that cannot be read is an error before
    /// any work.
    pub fn check(&self, screen: &Screen, exercise: &Exercise) -> Result<Attempt, BadInput> {
        let Some(checked) = progress::hash(&self.desk.mine(exercise)) else {
            self.desk.ensure_nothing_else(exercise)?;
            return Ok(Attempt::new(Outcome::NotBegun, "There is nothing to check yet."));
        };
        Progress::read(&self.desk)?;
        let attempt = Attempt::make(&self.library, screen, &self.desk, exercise)?;
        let blank = progress::hash(&self.desk.blank(exercise));
        Progress::change(&self.desk, exercise, |record| {
            record.take(&attempt, checked, blank.as_ref())
        })?;
        Ok(attempt)
    }
}
