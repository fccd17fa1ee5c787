//! What the files have and the result cannot: states of other optimizers than Adam, and entries
//! that nothing here knows.

use crate::read::Source;
use shardlab::error::{BadInput, printable};
use std::collections::BTreeSet;

/// Names in a list that are printed.
const SHOWN: usize = 5;

/// The first names of a list, and how many more there are, for a terminal.
pub(crate) fn first<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names: Vec<&str> = names.take(SHOWN).map(String::as_str).collect();
    printable(&names.join(", ")) + &more
}

/// Help for such a state. What AMSGrad does without it was tried: its first step fails.
const NO_PLACE: &str = "resume on as many ranks as have saved; or, if the optimizer can go on without it (for max_exp_avg_sq: \
                        with amsgrad off), add --no_strict, which leaves it out";

impl Source {
    /// Refuses states that the result has no place for. If the conversion is not strict, `notes`
    /// gets each. It also gets the entries that are not known.
    pub fn ensure_known(&self, notes: &mut Vec<String>) -> Result<(), BadInput> {
        let mut states = BTreeSet::new();
        for shard in self.shards.iter().flatten() {
            let groups = shard.groups.iter().enumerate();
            for (at, group) in groups.filter(|(_, group)| !group.more.is_empty()) {
                let more = first(group.more.iter());
                let also = format!(
                    "group {at} also has {more}, which a universal checkpoint has no place for"
                );
                if self.options.strict {
                    let what = format!("{} cannot be converted: {also}", shard.path.display());
                    return Err(BadInput::new(what, NO_PLACE));
                }
                states.insert(format!("{also}: it is left out"));
            }
        }
        notes.extend(states);
        let models = self.models.iter().flat_map(|model| &model.unknown);
        let shards = self.shards.iter().flatten().flat_map(|shard| &shard.unknown);
        let models = (models.collect::<BTreeSet<_>>(), "model's", "only copied");
        let shards = (shards.collect(), "optimizer's", "not converted");
        for (names, of, are) in [models, shards] {
            if !names.is_empty() {
                let names = first(names.into_iter());
                notes.push(format!(
                    "the {of} files also have entries that are not known here, and are {are}: {names}"
                ));
            }
        }
        Ok(())
    }
}
