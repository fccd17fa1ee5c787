//! Whether each file is that of its rank. Whole weights show it best (`weights.rs`). The files of
//! stage 3 often have none, and a rank's file has no number of its rank. What is left is here: the
//! name that `torch.save` wrote into the archive, equal numbers, and settings that all ranks share.

use crate::read::{Shard, Source};
use shardlab::error::BadInput;
use std::collections::HashMap;

/// Help for a doubt that need not be right.
const DOUBTFUL: &str = "copy the files of this save again, each under its own name; if you know that they are right, add \
                        --no_strict";

impl Source {
    /// Refuses files that are probably not those of their ranks in one save. If the conversion is
    /// not strict, `notes` gets every doubt.
    pub fn ensure_own(&self, notes: &mut Vec<String>) -> Result<(), BadInput> {
        let models = self.models.iter().flat_map(|model| &model.misnamed);
        let shards = self.shards.iter().flatten().filter_map(|shard| shard.misnamed.as_ref());
        let mut doubts: Vec<String> = models.chain(shards).cloned().collect();
        for shards in &self.shards {
            doubts.extend(copied(shards));
            let first = &shards[0];
            let other = shards.iter().find(|shard| shard.settings != first.settings);
            doubts.extend(other.map(|other| {
                format!(
                    "{} is from {}, and {} from {}: they are not of the same save",
                    other.path.display(),
                    other.settings,
                    first.path.display(),
                    first.settings
                )
            }));
        }
        match doubts.first() {
            Some(doubt) if self.options.strict => Err(BadInput::new(doubt, DOUBTFUL)),
            _ => {
                notes.append(&mut doubts);
                Ok(())
            }
        }
    }
}

/// Two files with the same numbers, of which one was copied over the other.
fn copied(shards: &[Shard]) -> Option<String> {
    let mut known: HashMap<&[u32], &Shard> = HashMap::new();
    // Padding is the same on every rank, and some writers leave out all checksums.
    let has_numbers = |shard: &&Shard| {
        let fragments = shard.groups.iter().flat_map(|group| group.fragments.values());
        fragments.clone().any(|range| !range.is_empty()) && shard.sums.iter().any(|sum| *sum != 0)
    };
    for shard in shards.iter().filter(has_numbers) {
        if let Some(first) = known.insert(&shard.sums, shard) {
            return Some(format!(
                "{} and {} have the same numbers, so one of them is not its rank's",
                first.path.display(),
                shard.path.display()
            ));
        }
    }
    None
}
