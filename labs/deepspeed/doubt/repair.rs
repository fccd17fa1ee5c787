//! Two mistakes of DeepSpeed in the record of a flat buffer, found and put right.

use crate::know::{Shapes, by_turns, fragments, paddings};
use crate::read::{Shard, Slice, Source};
use shardlab::error::BadInput;
use std::collections::BTreeMap;
use std::ops::Range;

type Fragments = BTreeMap<String, Range<usize>>;

/// Elements that are compared at either end of a parameter.
const ENDS: usize = 64;

impl Source {
    /// Looks for two mistakes of DeepSpeed in the record of each flat buffer: paddings that are
    /// recorded on the last rank alone, and fragments that are recorded in a different order than
    /// the buffer's. Puts fragments right. `notes` gets what was wrong. In stage 3 files record
    /// neither.
    pub fn repair(&mut self, notes: &mut Vec<String>) -> Result<(), BadInput> {
        if self.stage == 3 {
            return Ok(());
        }
        for mp in 0..self.files.mp {
            for group in 0..self.models[mp].groups.len() {
                let Some(right) = self.right_fragments(mp, group, notes)? else {
                    continue;
                };
                for (shard, fragments) in self.shards[mp].iter_mut().zip(right) {
                    shard.groups[group].fragments = fragments;
                }
            }
        }
        Ok(())
    }

    /// The fragments of one flat buffer, if those of the files are wrong.
    fn right_fragments(
        &self,
        mp: usize,
        group: usize,
        notes: &mut Vec<String>,
    ) -> Result<Option<Vec<Fragments>>, BadInput> {
        let shapes: &Shapes = &self.models[mp].groups[group];
        let shards = &self.shards[mp];
        let ranks = self.files.dp;
        let part = shards.iter().map(|shard| shard.groups[group].numel()).max().unwrap_or(0);
        let numel: usize = shapes.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum();
        if shards.iter().any(|shard| shard.aligned) || part * ranks < numel {
            return Ok(None);
        }
        let right = paddings(numel, part, ranks);
        let recorded = |dp: usize| shards[dp].groups[group].padding.unwrap_or(right[dp] as i64);
        let wrong = (0..ranks).rev().find(|dp| recorded(*dp) != right[*dp] as i64);
        if let Some(dp) = wrong {
            notes.push(format!(
                "group {group}: rank {dp} records a padding of {}, and its slice has {} elements, {} of them padding. \
                 No file is cut by its padding, so nothing is lost.",
                recorded(dp),
                part,
                right[dp],
            ));
        }
        let as_recorded: Vec<_> =
            shards.iter().map(|shard| shard.groups[group].fragments.clone()).collect();
        // Newer versions list the shapes in the buffer's order, older ones in the model's.
        let in_order = fragments(shapes, 0..shapes.len(), part, ranks);
        let by_turns = fragments(shapes, by_turns(shapes.len(), ranks).into_iter(), part, ranks);
        // The files must have all elements of an order.
        let is_there = |(shard, fragments): (&Shard, &Fragments)| {
            let end = fragments.values().map(|range| range.end).max().unwrap_or(0);
            shard.groups[group].states.iter().all(|state| end <= state.numel())
        };
        let mut others = vec![in_order, by_turns];
        others.retain(|other| *other != as_recorded && shards.iter().zip(other).all(is_there));
        if others.is_empty() {
            return Ok(None);
        }
        let fits = |fragments: &[Fragments]| -> Result<Option<bool>, BadInput> {
            let mut compared = false;
            for (name, shape) in shapes {
                let pieces = fragments.iter().enumerate();
                let pieces = pieces
                    .filter_map(|(dp, fragments)| Some((dp, fragments.get(name)?.clone())))
                    .collect();
                let slice = Slice { mp, group, shape: shape.clone(), pieces };
                // A wrong order shows at the ends of some parameter.
                let numel = slice.numel();
                for range in [0..numel.min(ENDS), numel.saturating_sub(ENDS)..numel] {
                    let values = slice.read(self, 0, range.clone())?;
                    match slice.differs(self, name, range.start, &values)? {
                        Some(None) => compared = true,
                        Some(Some(_)) => return Ok(Some(false)),
                        None => break,
                    }
                }
            }
            Ok(compared.then_some(true))
        };
        let turns = shards.iter().any(|shard| shard.round_robin) || self.models[mp].round_robin;
        let right = match fits(&as_recorded)? {
            Some(true) => None,
            Some(false) => {
                let mut right = None;
                for other in others {
                    if fits(&other)? == Some(true) {
                        right = Some(other);
                        break;
                    }
                }
                right
            }
            // Without weights the settings decide. Stage 1 ignores this one.
            None => others.into_iter().next().filter(|_| turns && self.stage == 2),
        };
        if right.is_some() {
            notes.push(format!(
                "group {group}: the buffer has its parameters in the order of round_robin_gradients, and the files record \
                 a different one. They were found by the right order. DeepSpeed 0.19.8 loads the result into the wrong \
                 order, too, unless round_robin_gradients is off.",
            ));
        }
        Ok(right)
    }
}
