//! labNN's flags.

use clap::{Parser, ValueEnum};
use kit::{CommFlags, help};

/// TITLE: TODO: which question, in one line?
#[derive(Parser)]
#[command(name = "labNN", version)]
#[command(after_long_help = help::examples("labNN", &[
    ("", "TODO: what four ranks show"),
    ("--ranks 2", "TODO: what is different with two"),
    ("--break left-out", "TODO: a mistake, and the check that notices"),
]))]
pub struct Args {
    /// Number of ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    #[command(flatten)]
    pub comm: CommFlags,
    /// Draw with ASCII characters only
    #[arg(long, help_heading = help::OUTPUT)]
    pub ascii: bool,
    /// Make a mistake on purpose, and see which check notices
    #[arg(long = "break", value_enum, help_heading = help::BREAK)]
    pub broken: Option<Break>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Break {
    /// The last rank brings nothing
    LeftOut,
}
