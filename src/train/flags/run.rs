//! How a run is started, and where its files go.

use crate::launch::CommFlags;
use std::path::PathBuf;

/// The folder, the screen, the transport: the same in every lab that trains.
#[derive(Clone, Debug, clap::Args)]
pub struct RunFlags {
    /// Folder for the run's files [default: runs/LAB]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print what the run would be, and end
    #[arg(long)]
    pub dry_run: bool,
    /// Draw with ASCII characters
    #[arg(long)]
    pub ascii: bool,
    #[command(flatten)]
    pub comm: CommFlags,
}

impl RunFlags {
    /// The folder for the run's files; `lab` names the default.
    pub fn folder(&self, lab: &str) -> PathBuf {
        self.out.clone().unwrap_or_else(|| PathBuf::from("runs").join(lab))
    }
}
