//! Flags for the outputs of each step.

use super::positive;
use crate::help;
use std::path::PathBuf;

/// Log lines, metrics, traces.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::OUTPUT)]
pub struct LogFlags {
    /// Print everything: the names in log lines, every setting, speed as a plot, a log line every
    /// ten steps
    #[arg(long)]
    pub all: bool,
    /// Steps from one log line to the next [default: a quarter of the run]
    #[arg(long, value_parser = positive(), hide_short_help = true)]
    pub log_interval: Option<usize>,
    /// Every rank prints its log lines, not only rank 0
    #[arg(long, hide_short_help = true)]
    pub log_all_ranks: bool,
    /// Write one JSON line per step to this file
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

impl LogFlags {
    /// Steps from one log line to the next, in a run of `steps` steps.
    pub fn interval(&self, steps: usize) -> usize {
        self.log_interval.unwrap_or(if self.all { 10 } else { (steps / 4).max(1) })
    }
}
