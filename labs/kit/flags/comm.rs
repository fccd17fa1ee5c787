//! Flags of every lab about communication.

use crate::help;
use shardlab::comm::{Link, Options};
use std::path::Path;
use std::time::Duration;

/// Flags about how ranks communicate.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = help::RANKS)]
pub struct CommFlags {
    /// Let threads communicate as over a network link, for example 50us,1GB/s
    #[arg(long, value_name = "LATENCY,BANDWIDTH")]
    pub link: Option<Link>,
    /// How long to wait for a rank that is late
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub deadline: Option<Duration>,
    /// Over MPI: do not compare the ranks' calls before each collective. Ranks in different calls,
    /// and ranks that end early or never come, then go unnoticed: the job hangs, or the MPI library
    /// crashes
    #[arg(long, hide_short_help = true)]
    pub no_check: bool,
}

impl CommFlags {
    /// The options for [`run_with`](shardlab::launch::run_with). If the ranks cannot go on
    /// together, `folder` gets their last calls.
    pub fn options(&self, folder: &Path) -> Options {
        let Options { deadline, .. } = Options::default();
        Options {
            link: self.link,
            no_check: self.no_check,
            deadline: self.deadline.unwrap_or(deadline),
            flight_file: Some(folder.join("flight.jsonl")),
        }
    }
}

/// Reads a time of at least 10 ms.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match seconds {
        Some(time) if time >= Duration::from_millis(10) => Ok(time),
        _ => Err("give seconds, 0.01 or more".to_string()),
    }
}
