//! All labs: what is code of each. What is data of them is in `labs/labs.toml`, and whoever needs
//! no more than that reads [`kit::Course`].

use anyhow::Result;
use kit::{Ask, Question};
use std::process::ExitCode;

/// A lab's code, as other programs call it.
pub struct Entry {
    /// For instance `lab03`.
    pub name: &'static str,
    /// Runs it as its own program does, with this process's command line.
    pub run: fn() -> ExitCode,
    /// What it asks: the first question before it runs, the others inside pages, and all of them in
    /// the quiz.
    pub questions: &'static [Ask],
}

/// All questions, in the order of the labs.
///
/// # Errors
/// If a lab cannot compute an answer.
pub fn questions() -> Result<Vec<Question>> {
    ALL.iter().flat_map(|lab| lab.questions).map(|ask| ask()).collect()
}

macro_rules! labs {
    ($($lab:ident,)*) => {
        pub use {$($lab),*};

        /// All labs, in order.
        pub const ALL: &[Entry] = &[$(Entry {
            name: stringify!($lab),
            run: || kit::lab($lab::run, $lab::QUESTIONS[0]),
            questions: $lab::QUESTIONS,
        }),*];
    };
}

labs! {
    // labs: written by workbook dev update
    lab00,
    lab01,
    lab02,
    lab03,
    lab04,
    lab05,
    lab06,
    lab07,
    lab08,
    lab09,
    lab10,
    lab11,
    lab12,
    lab13,
    // end of labs
}
