//! What a run asks of the communication between its ranks.

use super::Link;
use std::path::PathBuf;
use std::time::Duration;

/// Handed to [`launch::run_with`](crate::launch::run_with); the default is what [`launch::run`](crate::launch::run) takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Ranks that are threads take as long to communicate as over this link. None: as long as it takes.
    pub link: Option<Link>,
    /// Ranks that are processes do not ask before each collective whether all mean the same one, nor tell each other when they
    /// wait or end. Ranks that differ then hang, or write past the end of each other's vectors.
    pub no_check: bool,
    /// How long a rank waits for one that is late, before that is an error.
    pub deadline: Duration,
    /// Where the last calls of all ranks are written if the ranks cannot go on together. None: nowhere.
    pub flight_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options { link: None, no_check: false, deadline: Duration::from_secs(600), flight_file: None }
    }
}

impl Options {
    /// How long a rank waits before it says for whom: 30 s, or a tenth of a short deadline.
    pub fn notice(&self) -> Duration {
        Duration::from_secs(30).min(self.deadline / 10)
    }
}
