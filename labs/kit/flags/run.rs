//! Flags for a run's folder, screen and transport.

use crate::CommFlags;
use crate::help;
use std::path::PathBuf;

/// The folder, the screen, the transport. Every lab that trains has these flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = help::OUTPUT)]
pub struct RunFlags {
    /// Folder for the run's files [default: runs/LAB]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the run's settings, memory and time, and exit
    #[arg(long)]
    pub dry_run: bool,
    /// Draw with ASCII characters
    #[arg(long)]
    pub ascii: bool,
    #[command(flatten)]
    pub comm: CommFlags,
}

impl RunFlags {
    /// The folder for the run's files. `lab` is the name of the default folder.
    pub fn folder(&self, lab: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(lab))
    }
}
