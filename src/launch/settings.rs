//! Were all ranks started alike?
//!
//! A launcher starts a program once for each rank, and could give each its own flags. One rank that
//! accumulates gradients over two micro-steps, or that does not check its calls, would train
//! something else, or wait for ever. So before the first run of an MPI job the ranks compare one
//! hash of their settings. Only where hashes differ do they exchange the settings themselves, to
//! say who differs, and in what. Ranks that are threads have one command line.

use crate::comm::Options;
use crate::error::BadInput;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

/// Set once, before ranks exist.
static STARTED: OnceLock<Started> = OnceLock::new();

struct Started {
    settings: CommandLine,
    deadline: Option<Duration>,
}

/// Variables that change what a rank computes or calls. Not every launcher gives them to the
/// processes of other hosts.
const VARIABLES: [&str; 3] = ["SHARDLAB_CORPUS", "SHARDLAB_MPI_CHUNK", "SHARDLAB_SIMD"];

/// A rank's settings by name, as the user writes them (`--grad-accum 2`): what it was started with.
/// Empty if the program has not said it, or its flags were refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommandLine(pub BTreeMap<String, String>);

/// From now on these are the program's settings, which must be the same on all ranks of an MPI job:
/// all that changes what a rank computes or calls. `deadline` is how long ranks wait for one that
/// is late. The first call counts.
pub fn started_with(mut settings: CommandLine, deadline: Option<Duration>) {
    for name in VARIABLES {
        if let Ok(value) = std::env::var(name) {
            settings.0.insert(name.to_string(), format!("{name}={value}"));
        }
    }
    STARTED.set(Started { settings, deadline }).ok();
}

/// This program's settings.
pub(super) fn settings() -> CommandLine {
    STARTED
        .get()
        .map_or_else(CommandLine::default, |started| started.settings.clone())
}

/// How long ranks wait for each other before there is a run.
pub(super) fn deadline() -> Duration {
    let given = STARTED.get().and_then(|started| started.deadline);
    given.unwrap_or(Options::default().deadline)
}

impl CommandLine {
    /// What the user wrote of this setting.
    fn written(&self, name: &str) -> String {
        self.0.get(name).cloned().unwrap_or(format!("no {name}"))
    }

    /// The names of the settings in which these and `other` differ.
    fn names_that_differ<'a>(&'a self, other: &'a CommandLine) -> impl Iterator<Item = &'a String> {
        let names = self.0.keys().chain(other.0.keys());
        names.filter(|name| self.0.get(*name) != other.0.get(*name))
    }
}

/// Ranks whose settings an error shows, and settings of each.
const SHOWN: usize = 8;

/// The error of ranks that were started with different settings. `all` has the settings of every
/// rank. Empty ones belong to a rank that ends with an error of its own, or to a program without
/// flags.
pub(super) fn ensure_alike(all: &[CommandLine]) -> Result<(), BadInput> {
    let is_known = |rank: &usize| !all[*rank].0.is_empty();
    let known: Vec<usize> = (0..all.len()).filter(is_known).collect();
    // The settings of most ranks are taken for the right ones, or else those of the first rank.
    let alike = |rank: usize| all.iter().filter(|other| **other == all[rank]).count();
    let Some(usual) = known.iter().copied().rev().max_by_key(|&rank| alike(rank)) else {
        return Ok(());
    };
    let differs = |rank: &usize| all[*rank] != all[usual];
    let odd: Vec<usize> = known.into_iter().filter(differs).collect();
    if odd.is_empty() {
        return Ok(());
    }
    let shown = &odd[..odd.len().min(SHOWN)];
    let names: BTreeSet<&String> = shown
        .iter()
        .flat_map(|&rank| all[usual].names_that_differ(&all[rank]))
        .collect();
    let who = match odd[..] {
        [one] => format!("rank {one} was"),
        _ => format!("{} ranks were", odd.len()),
    };
    let mut what = format!("{who} started with other settings than rank {usual}");
    for rank in [usual].iter().chain(shown) {
        let settings = names.iter().take(SHOWN).map(|name| all[*rank].written(name));
        let settings: Vec<String> = settings.collect();
        what += &format!("\n  rank {rank}  {}", settings.join("  "));
    }
    if odd.len() > SHOWN {
        what += &format!("\n  and {} more", odd.len() - SHOWN);
    }
    Err(BadInput::new(
        what,
        "start every rank with the same flags and the same SHARDLAB_ variables; only the names of output files may differ",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(flags: &[&str]) -> CommandLine {
        let named =
            |flag: &&str| (flag.split([' ', '=']).next().unwrap().to_string(), flag.to_string());
        CommandLine(flags.iter().map(named).collect())
    }

    #[test]
    fn ranks_that_were_started_alike_go_on() {
        let one = settings(&["--steps 3", "--no-check"]);
        ensure_alike(&[one.clone(), one.clone(), one.clone()]).unwrap();
        // A rank with an error of its own, and programs without flags.
        ensure_alike(&[one.clone(), CommandLine::default(), one]).unwrap();
        ensure_alike(&[CommandLine::default(), CommandLine::default()]).unwrap();
        ensure_alike(&[]).unwrap();
    }

    #[test]
    fn the_error_names_the_rank_that_differs_and_what_it_has() {
        let many = settings(&["--steps 3", "--grad-accum 1"]);
        let odd = settings(&["--steps 3", "--grad-accum 2", "--no-check"]);
        let says = |all: &[&CommandLine]| {
            let all: Vec<CommandLine> = all.iter().map(|one| (*one).clone()).collect();
            ensure_alike(&all).unwrap_err().what
        };
        assert_eq!(
            says(&[&odd, &many, &many]),
            "rank 0 was started with other settings than rank 1\n  \
             rank 1  --grad-accum 1  no --no-check\n  rank 0  --grad-accum 2  --no-check"
        );
        let two = says(&[&odd, &many]);
        assert!(two.starts_with("rank 1 was started with other settings than rank 0\n"));
        let none = CommandLine::default();
        assert_eq!(
            says(&[&none, &odd, &many])[..46],
            two.replace('1', "2").replace('0', "1")[..46]
        );

        let own: Vec<CommandLine> =
            (0..100).map(|i| settings(&[&format!("SHARDLAB_SIMD={i}")])).collect();
        let all = ensure_alike(&own).unwrap_err().what;
        assert!(all.starts_with(
            "99 ranks were started with other settings than rank 0\n  rank 0  SHARDLAB_SIMD=0\n"
        ));
        assert!(all.ends_with("\n  rank 8  SHARDLAB_SIMD=8\n  and 91 more"), "{all}");
    }
}
