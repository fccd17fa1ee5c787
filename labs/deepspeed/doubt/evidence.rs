//! Whether each file is that of its rank. Whole weights show it best (`weights.rs`). The files of
//! stage 3 often have none, and a rank's file has no number of its rank. What is left is here:
//! equal files, the name that `torch.save` wrote into the archive, settings that all ranks share,
//! and padding, which has no gradients and so no moments.

use crate::read::{Group, Rank, Shard, Source};
use crate::report::Refusal;
use crate::torch::Stored;
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::ops::Range;

/// Help for files that contradict each other.
const NOT_OWN: &str =
    "copy the files of this save again, each under its own name, or use an earlier checkpoint";

/// Help for a doubt that need not be right.
const DOUBTFUL: &str = "copy the files of this save again, each under its own name; if you know that they are right, add \
                        --no_strict";

/// Elements that are read at a time.
const CHUNK: usize = 1 << 16;

impl Source {
    /// Refuses files that cannot all be those of their ranks. `notes` gets what is odd and proves
    /// nothing, and, if the conversion is not strict, every doubt.
    pub fn ensure_own(&self, notes: &mut Vec<String>) -> Result<(), Refusal> {
        for shards in &self.shards {
            if let Some([first, second]) = equal(shards)? {
                let what = format!(
                    "{} and {} have the same numbers, so one of them is not its rank's",
                    first.path.display(),
                    second.path.display()
                );
                return Err(Refusal::Contradiction(BadInput::new(what, NOT_OWN)));
            }
        }
        let mut doubts = self.misnamed.clone();
        for shards in &self.shards {
            let first = &shards[0];
            if let Some(other) = shards.iter().find(|shard| shard.settings != first.settings) {
                doubts.push(format!(
                    "{} is from {}, and {} from {}: they are not of the same save",
                    other.path.display(),
                    other.settings,
                    first.path.display(),
                    first.settings
                ));
            }
            for shard in shards {
                match ensure_blank(shard, shards)? {
                    None => {}
                    Some((how, Some(other))) => doubts.push(format!(
                        "{how}, and {} has none where its parameters are",
                        other.path.display()
                    )),
                    Some((how, None)) => notes.push(how),
                }
            }
        }
        match doubts.first() {
            Some(doubt) if self.options.strict => {
                Err(Refusal::Contradiction(BadInput::new(doubt, DOUBTFUL)))
            }
            _ => {
                notes.append(&mut doubts);
                Ok(())
            }
        }
    }

    /// Why nobody can know whether the values are right. `seen` are the ranks whose values were
    /// compared with weights, of `compared` slices.
    pub fn unverifiable(
        &self,
        compared: usize,
        all: usize,
        seen: impl Fn(Rank) -> bool,
    ) -> Option<String> {
        let shards = || self.shards.iter().flatten();
        let has = |shard: &&Shard| {
            shard
                .groups
                .iter()
                .any(|group| group.fragments.values().any(|range| !range.is_empty()))
        };
        let unseen: Vec<&Shard> = shards().filter(has).filter(|shard| !seen(shard.rank)).collect();
        if compared == all || compared > 0 && unseen.is_empty() {
            return None;
        }
        let compared = match unseen.first() {
            Some(first) if compared > 0 => {
                let name = first.path.file_name().unwrap_or_default().display();
                format!(
                    "no weight shows the values of {name}, nor of {} other files",
                    unseen.len() - 1
                )
            }
            _ => "the files have no whole weights to compare the values with".to_string(),
        };
        let unnamed = shards().filter(|shard| shard.named.is_none()).count();
        let named = if !self.misnamed.is_empty() {
            "files name a different rank inside".to_string()
        } else if unnamed > 0 {
            let all = shards().count();
            format!(
                "{unnamed} of {all} files do not name their rank inside, so an exchange would not be seen"
            )
        } else {
            "each file names its own rank inside, so none was exchanged, but nothing shows that all are from one run"
                .to_string()
        };
        Some(format!("{compared}; {named}"))
    }
}

/// Two files with equal numbers that no two ranks can have. Both may be zero, or all padding, or a
/// parameter as it was made.
fn equal(shards: &[Shard]) -> Result<Option<[&Shard; 2]>, BadInput> {
    let mut alike: BTreeMap<&str, Vec<&Shard>> = BTreeMap::new();
    for shard in shards {
        alike.entry(&shard.sample).or_default().push(shard);
    }
    for alike in alike.values().filter(|alike| alike.len() > 1) {
        let mut known: BTreeMap<Vec<u32>, &Shard> = BTreeMap::new();
        for shard in alike {
            let Some(first) = known.insert(sums(shard)?, shard) else {
                continue;
            };
            if varies(shard)? || varies(first)? {
                return Ok(Some([first, shard]));
            }
        }
    }
    Ok(None)
}

/// The checksum of every state.
fn sums(shard: &Shard) -> Result<Vec<u32>, BadInput> {
    let of = |state: &Stored| {
        let mut sum = crc32fast::Hasher::new();
        read(state, 0..state.numel(), |bytes| {
            sum.update(bytes);
            true
        })?;
        Ok(sum.finalize())
    };
    shard.groups.iter().flat_map(|group| &group.states).map(of).collect()
}

/// Whether a parameter has two different numbers here. A bias that has not been trained is zero on
/// every rank.
fn varies(shard: &Shard) -> Result<bool, BadInput> {
    for group in &shard.groups {
        for (state, range) in group
            .states
            .iter()
            .flat_map(|state| group.fragments.values().map(move |range| (state, range)))
        {
            let mut first = Vec::new();
            let same = read(state, range.clone(), |bytes| {
                let size = state.dtype.size();
                if first.is_empty() {
                    first = bytes[..size].to_vec();
                }
                bytes.chunks(size).all(|element| element == first)
            })?;
            if !same {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Looks for moments in a rank's padding. DeepSpeed leaves them zero, unless it keeps moments in
/// files (NVMe) and uses a buffer again. So that alone proves nothing; but there may be a rank
/// without moments at the same place, where it should have some.
fn ensure_blank<'a>(
    shard: &Shard,
    all: &'a [Shard],
) -> Result<Option<(String, Option<&'a Shard>)>, BadInput> {
    for (at, group) in shard.groups.iter().enumerate() {
        let mut empty = true;
        for range in &group.blank {
            empty = empty && zero(group, range)?;
        }
        if empty {
            continue;
        }
        let how = format!("{} has moments where it should have padding", shard.path.display());
        for other in all.iter().filter(|other| other.rank != shard.rank) {
            let Some(theirs) = other.groups.get(at).filter(|theirs| theirs.states.len() == STATES)
            else {
                continue;
            };
            let own = |range: &&Range<usize>| {
                theirs
                    .fragments
                    .values()
                    .any(|part| part.start <= range.start && range.end <= part.end)
            };
            let own: Vec<&Range<usize>> = group.blank.iter().filter(own).collect();
            let mut none = !own.is_empty();
            for range in own {
                none = none && zero(theirs, range)?;
            }
            if none {
                return Ok(Some((how, Some(other))));
            }
        }
        return Ok(Some((how, None)));
    }
    Ok(None)
}

/// A value, and the moments of Adam.
const STATES: usize = crate::STATES.len();

/// Whether both moments of these elements are zero, of either sign.
fn zero(group: &Group, range: &Range<usize>) -> Result<bool, BadInput> {
    for state in group.states.iter().skip(1) {
        let zero = |element: &[u8]| {
            let (last, others) = element.split_last().unwrap_or((&0, &[]));
            last & 0x7f == 0 && others.iter().all(|byte| *byte == 0)
        };
        let zeros = |bytes: &[u8]| bytes.chunks(state.dtype.size()).all(zero);
        if range.end <= state.numel() && !read(state, range.clone(), zeros)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads elements in parts, as long as `go_on` says so. Returns whether it always did.
fn read(
    state: &Stored,
    elements: Range<usize>,
    mut go_on: impl FnMut(&[u8]) -> bool,
) -> Result<bool, BadInput> {
    let mut bytes = Vec::new();
    for begin in elements.clone().step_by(CHUNK) {
        let part = begin..(begin + CHUNK).min(elements.end);
        bytes.resize(part.len() * state.dtype.size(), 0);
        state.read(part, &mut bytes)?;
        if !go_on(&bytes) {
            return Ok(false);
        }
    }
    Ok(true)
}
