//! lab00's flags.

use crate::job::JobFlags;
use clap::{Parser, ValueEnum};
use kit::{CommFlags, help};
use std::path::PathBuf;

/// Ranks: who am I, where am I, and how was this job started?
#[derive(Parser)]
#[command(name = "lab00", version)]
#[command(after_long_help = help::examples("lab00", &[
    ("", "four ranks, their numbers, and a token around the ring"),
    ("--ranks 8 --info", "the job in a cluster's words: nodes, room, the launch line"),
    ("--break duplicate-rank", "two ranks with one number, and the check that notices"),
]))]
pub struct Args {
    /// Number of ranks: threads of this process [default: 4], or the launcher's processes
    #[arg(long, help_heading = help::RANKS)]
    pub ranks: Option<usize>,
    /// Print the job in a cluster's words: nodes, room for ranks, and the launch line
    #[arg(long, help_heading = help::INSTEAD)]
    pub info: bool,
    /// Write the scheduler's variables to this file, so that another shell can read them: source
    /// FILE
    #[arg(long, value_name = "FILE", help_heading = help::INSTEAD)]
    pub jobenv: Option<PathBuf>,
    #[command(flatten)]
    pub job: JobFlags,
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
    /// The last rank takes the number of the one before it
    DuplicateRank,
}
