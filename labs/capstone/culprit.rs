//! Which of the reader's parts is wrong: the run is repeated with some of them exchanged for the
//! library's.

use crate::compare::{Difference, difference, of_lives};
use crate::life::Span;
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

/// What was found, and what it took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    pub culprits: Vec<Culprit>,
    /// Runs that it took, whole ones and short ones.
    pub runs: usize,
    /// A difference that no part makes alone.
    pub unexplained: Option<Difference>,
}

/// The most culprits that are looked for.
const MOST: usize = 4;

/// Finds the parts that make `first`, the difference between the reader's run and the library's.
///
/// Half of the parts are exchanged for the library's. If the difference is still there, it is in
/// the other half, and so on: one part of twelve takes four short runs, up to the step where the
/// difference shows. Then it is exchanged, and a whole run tells whether the others are right.
pub fn find(
    setting: &Setting,
    versions: &Versions,
    right: &Run,
    first: Difference,
    scratch: &Path,
    say: &dyn Fn(String),
) -> Search {
    let mut search = Search::default();
    let mut versions = *versions;
    let mut next = Some(first);
    while let Some(shows) = next.take() {
        let mut suspects: Vec<Part> = yours(&versions);
        let mut tries = Tries {
            setting,
            versions,
            right,
            scratch,
            shows: shows.clone(),
            whole: false,
            runs: 0,
        };
        // A difference in life 2 can be one of life 1 that is not seen there. Life 2 alone tells.
        tries.whole = shows.life == 2 && tries.with(&suspects).is_none();
        let mut alone = None;
        while suspects.len() > 1 {
            say(format!("{} parts may be wrong", suspects.len()));
            let (some, others) = suspects.split_at(suspects.len().div_ceil(2));
            (suspects, alone) = match tries.with(some) {
                Some(found) => (some.to_vec(), Some(found)),
                None => (others.to_vec(), None),
            };
        }
        let found = suspects.first().copied().zip(alone.or_else(|| tries.with(&suspects)));
        search.runs += tries.runs;
        let Some((part, shows)) = found.filter(|_| !suspects.is_empty()) else {
            search.unexplained = Some(shows);
            break;
        };
        search.culprits.push(Culprit { part, shows });
        versions[part as usize] = Whose::Library;
        if search.culprits.len() < MOST && !yours(&versions).is_empty() {
            say(format!("{} is exchanged: are the others right?", part.exercise()));
            search.runs += 1;
            let rest = setting.run(&versions, scratch, &|_, _| ());
            next = difference(&rest, right);
        }
    }
    search
}

fn yours(versions: &Versions) -> Vec<Part> {
    let yours = |part: &Part| versions[*part as usize] == Whose::Yours;
    Part::ALL.into_iter().filter(yours).collect()
}

/// Runs with some of the suspects, up to the step where the difference shows.
struct Tries<'a> {
    setting: &'a Setting<'a>,
    versions: Versions,
    right: &'a Run,
    scratch: &'a Path,
    shows: Difference,
    /// Whether life 2 needs a life 1 of its own. Else it begins with the library's checkpoint.
    whole: bool,
    runs: usize,
}

impl Tries<'_> {
    /// Where a run differs in which only `suspects` are the reader's.
    fn with(&mut self, suspects: &[Part]) -> Option<Difference> {
        self.runs += 1;
        let mut versions = self.versions;
        for part in Part::ALL {
            // Any right draw is right, so both runs draw alike.
            let is_suspect = suspects.contains(&part) || part == Part::Batches;
            if versions[part as usize] == Whose::Yours && !is_suspect {
                versions[part as usize] = Whose::Library;
            }
        }
        let life = |life, until, from: &Path| {
            let span = Span {
                life,
                until,
                folder: self.scratch.to_path_buf(),
                from: from.to_path_buf(),
            };
            self.setting.life(&versions, &span, &|_, _| ())
        };
        let Difference { life: of, step, .. } = self.shows;
        let last = self.setting.plan.steps;
        if of == 1 {
            let found = life(1, step, self.scratch);
            return of_lives(1, &found, &self.right.life1);
        }
        let right = self.right.life2.as_ref()?;
        let from = if self.whole {
            let first = life(1, self.setting.plan.killed_after, self.scratch);
            if let Some(found) = of_lives(1, &first, &self.right.life1) {
                return Some(found);
            }
            self.scratch
        } else {
            &self.right.life1.folder
        };
        of_lives(2, &life(2, step.min(last), from), right)
    }
}
