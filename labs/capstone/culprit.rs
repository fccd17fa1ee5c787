//! Which of the reader's parts is wrong: the run is repeated with some of them exchanged for the
//! library's.

use crate::compare::{Difference, difference};
use crate::parts::{Part, Versions, Whose};
use crate::run::{Run, Setting};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A wrong part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Culprit {
    pub part: Part,
    /// Where the run differs first if only this part is the reader's.
    pub shows: Difference,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    pub culprits: Vec<Culprit>,
    /// A difference that no part makes alone.
    pub unexplained: Option<Difference>,
}

/// Finds the parts that make `first`, the difference between the reader's run and the library's,
/// besides what is wrong with the draws.
///
/// Half of the parts are exchanged for the library's. If the difference is still there, it is in
/// the other half, and so on: one part of twelve takes four short runs, up to the step where the
/// difference shows. Then it is exchanged, and a whole run tells whether the others are right.
pub fn find(
    setting: &Setting,
    versions: &Versions,
    right: &Run,
    [first, drawn]: [Option<Difference>; 2],
    scratch: &Path,
    say: &dyn Fn(String),
) -> Search {
    let mut search = Search::default();
    let mut versions = *versions;
    let mut next = first;
    if let Some(shows) = drawn {
        let part = Part::Batches;
        search.culprits.push(Culprit { part, shows });
        versions[part as usize] = Whose::Library;
        next = difference(&setting.run(&versions, scratch), right);
    }
    while let Some(shows) = next.take() {
        let until = match shows.life {
            1 => [shows.step, 0],
            _ => [setting.plan.killed_after, shows.step.min(setting.plan.config.steps)],
        };
        // Where a run differs in which only `suspects` are the reader's.
        let with = |suspects: &[Part]| {
            let only = only(&versions, suspects);
            difference(&setting.run_until(&only, scratch, until), right)
        };
        let mut suspects: Vec<Part> = yours(&versions);
        let mut alone = None;
        while suspects.len() > 1 {
            say(format!("{} parts may be wrong", suspects.len()));
            let (some, others) = suspects.split_at(suspects.len().div_ceil(2));
            alone = with(some);
            suspects = if alone.is_some() { some } else { others }.to_vec();
        }
        let found = suspects.first().copied().zip(alone.or_else(|| with(&suspects)));
        let Some((part, shows)) = found else {
            search.unexplained = Some(shows);
            break;
        };
        search.culprits.push(Culprit { part, shows });
        versions[part as usize] = Whose::Library;
        if !yours(&versions).is_empty() {
            say(format!("{} is exchanged: are the others right?", part.exercise()));
            next = difference(&setting.run(&versions, scratch), right);
        }
    }
    search
}

fn yours(versions: &Versions) -> Vec<Part> {
    let yours = |part: &Part| versions[*part as usize] == Whose::Yours;
    Part::ALL.into_iter().filter(yours).collect()
}

/// The versions in which all parts of the reader but `suspects` are exchanged for the library's.
fn only(versions: &Versions, suspects: &[Part]) -> Versions {
    let mut versions = *versions;
    for part in yours(&versions) {
        // Any right draw is right, so both runs draw alike.
        if !suspects.contains(&part) && part != Part::Batches {
            versions[part as usize] = Whose::Library;
        }
    }
    versions
}
