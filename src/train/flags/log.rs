//! What a run writes down about each step.

use super::in_range;
use crate::error::BadInput;
use std::path::PathBuf;

/// Log lines, metrics, traces.
#[derive(Clone, Debug, clap::Args)]
pub struct LogFlags {
    /// Steps from one log line to the next
    #[arg(long, default_value_t = 10)]
    pub log_interval: usize,
    /// Every rank prints its log lines, not only rank 0
    #[arg(long)]
    pub log_all_ranks: bool,
    /// Write one JSON line per step to this file
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
    /// Write every rank's steps to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

impl LogFlags {
    pub fn check(&self) -> Result<(), BadInput> {
        in_range("log-interval", self.log_interval, usize::MAX)
    }
}
