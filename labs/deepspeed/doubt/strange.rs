//! What the files have and the result cannot: states of other optimizers than Adam, and entries
//! that nothing here knows.

use crate::read::Source;
use shardlab::error::BadInput;
use std::collections::BTreeSet;

/// Names in a list that are printed.
const SHOWN: usize = 5;

/// The first names of a list, and how many more there are.
pub(crate) fn first<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let names = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        format!("{names} and {more} more")
    } else {
        names
    }
}

impl Source {
    /// Refuses states that the result has no place for. If the conversion is not strict, `notes`
    /// gets each. It also gets the entries that are not known.
    pub fn ensure_known(&self, notes: &mut Vec<String>) -> Result<(), BadInput> {
        let mut states = BTreeSet::new();
        for shard in self.shards.iter().flatten() {
            for (at, group) in
                shard.groups.iter().enumerate().filter(|(_, group)| !group.more.is_empty())
            {
                let more = group.more.join(", ");
                let also = format!(
                    "group {at} also has {more}, which a universal checkpoint has no place for"
                );
                if self.options.strict {
                    let what = format!("{} cannot be converted: {also}", shard.path.display());
                    let help = "resume on as many ranks as have saved; or, if the optimizer can go on without it (for \
                                max_exp_avg_sq: with amsgrad off), add --no_strict, which leaves it out";
                    return Err(BadInput::new(what, help));
                }
                states.insert(format!("{also}: it is left out"));
            }
        }
        notes.extend(states);
        let of_models = self.models.iter().flat_map(|model| &model.unknown);
        let of_shards = self.shards.iter().flatten().flat_map(|shard| &shard.unknown);
        let of_models: BTreeSet<&str> = of_models.map(String::as_str).collect();
        let of_shards: BTreeSet<&str> = of_shards.map(String::as_str).collect();
        for (names, what) in [
            (
                of_models,
                "the model's files also have entries that are not known here, and are only copied",
            ),
            (
                of_shards,
                "the optimizer's files also have entries that are not known here, and are not converted",
            ),
        ] {
            if !names.is_empty() {
                notes.push(format!("{what}: {}", first(names.into_iter())));
            }
        }
        Ok(())
    }
}
