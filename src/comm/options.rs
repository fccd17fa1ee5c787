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
    /// Simulated nodes, and another link between them.
    pub nodes: Option<Nodes>,
    /// Turns the checks of MPI ranks off: ranks no longer compare their calls before each
    /// collective, and no longer report that they wait or end. Ranks in different calls then hang,
    /// or write past the end of each other's vectors.
    pub no_check: bool,
    /// How long a rank waits for a late rank until the wait is an error.
    pub deadline: Duration,
    /// The file for the last calls of all ranks, written if the ranks cannot go on together.
    pub flight_file: Option<PathBuf>,
}

/// Simulated nodes: as many ranks in each, neighbours by their numbers in the world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nodes {
    pub ranks_per_node: usize,
    /// The link that messages between nodes take. So does each collective of ranks that are on
    /// several: it is as slow as its slowest link.
    pub link: Link,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            link: None,
            nodes: None,
            no_check: false,
            deadline: Duration::from_secs(600),
            flight_file: None,
        }
    }
}

impl Options {
    /// The simulated link between these ranks, by their numbers in the world.
    pub(super) fn link_between(&self, ranks: &[usize]) -> Option<Link> {
        let apart = |nodes: &Nodes| {
            let node = |rank: usize| rank / nodes.ranks_per_node.max(1);
            ranks.windows(2).any(|pair| node(pair[0]) != node(pair[1]))
        };
        self.nodes.filter(apart).map(|nodes| nodes.link).or(self.link)
    }

    /// Whether any ranks communicate over a simulated link.
    pub(crate) fn has_link(&self) -> bool {
        self.link.is_some() || self.nodes.is_some()
    }

    /// How long a rank waits until it prints which rank is late: 30 s, or a tenth of a short
    /// deadline.
    pub fn notice(&self) -> Duration {
        Duration::from_secs(30).min(self.deadline / 10)
    }
}
