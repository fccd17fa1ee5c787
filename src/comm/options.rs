//! The options of a run: how its ranks communicate.

use super::Link;
use std::path::PathBuf;
use std::time::Duration;

/// How the ranks of a run communicate, for [`launch::run_with`](crate::launch::run_with).
/// [`launch::run`](crate::launch::run) uses the default.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// A simulated link: threads take as long to communicate as over this link. Without it they
    /// communicate at memory speed.
    pub link: Option<Link>,
    /// Turns the checks of MPI ranks off: ranks no longer compare their calls before each
    /// collective, and no longer report that they wait or end. Ranks in different calls then hang,
    /// or write past the end of each other's vectors.
    pub no_check: bool,
    /// How long a rank waits for a late rank until the wait is an error.
    pub deadline: Duration,
    /// The file for the last calls of all ranks, written if the ranks cannot go on together.
    pub flight_file: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            link: None,
            no_check: false,
            deadline: Duration::from_secs(600),
            flight_file: None,
        }
    }
}

impl Options {
    /// How long a rank waits until it prints which rank is late: 30 s, or a tenth of a short
    /// deadline.
    pub fn notice(&self) -> Duration {
        Duration::from_secs(30).min(self.deadline / 10)
    }
}
