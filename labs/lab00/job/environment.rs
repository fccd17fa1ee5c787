//! Where a search for the job looks: variables, files, and the CPUs of a node.

use super::hosts::MOST;
use shardlab::error::BadInput;
use shardlab::launch;
use std::io;
use std::path::Path;

/// The CPUs of a node.
///
/// A job counts cores, not hardware threads: the two threads of a core share its arithmetic units,
/// which one training rank fills. Linux also numbers all second threads after the first ones. So on
/// a Polaris node (32 cores, 64 threads, 4 ranks) a depth of 8 gives each rank 8 cores, while a
/// depth of 16 binds ranks 0 and 2 to the same cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// Cores, each with its own arithmetic units.
    pub cores: usize,
    /// Hardware threads: CPUs as the operating system counts them.
    pub threads: usize,
}

impl Cpus {
    /// The CPUs of this node that this process may use.
    pub fn here() -> Cpus {
        let threads = launch::cores();
        let cores = sysinfo::System::physical_core_count().unwrap_or(threads);
        // A container sees all cores of the machine, and may use fewer threads.
        Cpus { cores: cores.clamp(1, threads), threads }
    }
}

/// The environment, files and CPUs in which a search for the job looks.
pub struct Environment<'a> {
    /// Returns a variable of the environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Returns the text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
    /// Returns what `flux hostlist local` prints, if there is such a program.
    pub flux_hosts: &'a dyn Fn() -> Option<String>,
    /// This node's name.
    pub host: String,
    /// This node's CPUs. All nodes count as equal.
    pub cpus: Cpus,
}

impl Environment<'_> {
    /// The value of a variable that is not empty: schedulers and scripts leave empty variables
    /// behind.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.env)(name)
            .map(|value| value.trim().to_string())
            .filter(|value| !value.is_empty())
    }

    /// The value of a variable that must be a positive number if it is set.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, BadInput> {
        let Some(text) = self.variable(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) if (1..=MOST).contains(&number) => Ok(Some(number)),
            _ => Err(BadInput::new(
                format!("{name}={text} is no number from 1 to {MOST}"),
                format!("set it right, or unset {name}"),
            )),
        }
    }
}
