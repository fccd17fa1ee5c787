//! Were all ranks started alike?
//!
//! A launcher starts a program once for each rank, and could give each its own flags. One rank that
//! accumulates gradients over two micro-steps, or that does not check its calls, would train
//! something else, or wait for ever. So before the first run of an MPI job the ranks compare one
//! hash of their settings. Only where hashes differ do they exchange the settings themselves, to
//! say who differs, and in what. Ranks that are threads have one command line.

use crate::comm::Options;
use crate::error::BadInput;
use crate::simd;
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

/// The entry of a rank whose processor multiplies bf16 in tiles. Ranks may differ in it.
const TILES: &str = "tiles";

/// This program's settings, and whether this rank has tiles.
pub(super) fn settings() -> CommandLine {
    let started = STARTED.get().map(|started| started.settings.clone());
    let mut settings = started.unwrap_or_default();
    if simd::has_tiles() {
        settings.0.insert(TILES.to_string(), String::new());
    }
    settings
}

/// Takes out of the settings of all ranks which of them have tiles, and returns whether only some
/// do. All must multiply to the same bits, so then none may use them.
pub(super) fn only_some_have_tiles(all: &mut [CommandLine]) -> bool {
    let with = all.iter_mut().filter_map(|settings| settings.0.remove(TILES)).count();
    (1..all.len()).contains(&with)
}

/// How long ranks wait for each other before there is a run.
pub(super) fn deadline() -> Duration {
    let given = STARTED.get().and_then(|started| started.deadline);
    given.unwrap_or(Options::default().deadline)
}

/// The error of two ranks that were started with different settings. `all` has the settings of
/// every rank. Empty ones belong to a rank that ends with an error of its own, or to a program
/// without flags.
pub(super) fn ensure_alike(all: &[CommandLine]) -> Result<(), BadInput> {
    let mut known = (0..all.len()).filter(|&rank| !all[rank].0.is_empty());
    let Some(first) = known.next() else {
        return Ok(());
    };
    let Some(odd) = known.find(|&rank| all[rank] != all[first]) else {
        return Ok(());
    };
    let differs = |name: &&String| all[first].0.get(*name) != all[odd].0.get(*name);
    let names: BTreeSet<&String> =
        all[first].0.keys().chain(all[odd].0.keys()).filter(differs).collect();
    let mut what = format!("rank {odd} was started with other settings than rank {first}");
    for rank in [first, odd] {
        let written = |name: &&String| {
            let given = all[rank].0.get(*name);
            given.cloned().unwrap_or(format!("no {name}"))
        };
        let written: Vec<String> = names.iter().map(written).collect();
        what += &format!("\n  rank {rank}  {}", written.join("  "));
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

    /// Tiles are no setting, but all ranks use them or none does.
    #[test]
    fn tiles_are_used_by_all_ranks_or_by_none() {
        let without = settings(&["--steps 3"]);
        let with = settings(&["--steps 3", TILES]);
        for (ranks, only_some) in [
            (vec![with.clone(), without.clone(), with.clone()], true),
            // A rank without flags, or with an error of its own, has no tiles either.
            (vec![with.clone(), CommandLine::default()], true),
            (vec![with.clone(), with], false),
            (vec![without.clone(), CommandLine::default()], false),
            (vec![], false),
        ] {
            let mut all = ranks.clone();
            assert_eq!(only_some_have_tiles(&mut all), only_some, "{ranks:?}");
            ensure_alike(&all).unwrap();
        }
    }

    #[test]
    fn the_error_names_a_rank_that_differs_and_what_it_has() {
        let many = settings(&["--steps 3", "--grad-accum 1"]);
        let odd = settings(&["--steps 3", "--grad-accum 2", "--no-check"]);
        let error = ensure_alike(&[CommandLine::default(), many.clone(), many, odd]).unwrap_err();
        assert_eq!(
            error.what,
            "rank 3 was started with other settings than rank 1\n  \
             rank 1  --grad-accum 1  no --no-check\n  rank 3  --grad-accum 2  --no-check"
        );
    }
}
