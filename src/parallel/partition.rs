//! The slices that each rank holds when ranks shard a model's parameters, gradients or optimizer
//! state.
//!
//! There are two ways for optimizers that work number by number. Both are the same as DeepSpeed's,
//! so that its checkpoints can be read and written:
//!
//! - Stages 1 and 2 join all tensors of a parameter group and cut them into equal shards
//!   ([`Flat`]). A shard begins and ends in the middle of tensors.
//! - Stage 3 shards each tensor on its own ([`Sharded`]). A tensor can then be gathered by itself,
//!   just before it is used.
//!
//! An optimizer that needs whole matrices, such as Muon, gives each to one rank ([`owners`]).
//!
//! Shards are equal. A group that does not divide evenly is padded at its end. The padding may be
//! longer than one shard: then several of the last ranks hold padding, and some of them hold only
//! padding. DeepSpeed's writer once recorded all padding on the last rank, so a run on 768 ranks
//! could not be converted (the source on universal checkpoints; DeepSpeed pull request 6974).

use crate::comm::Comm;
use crate::tensor::{Group, Params};
use std::ops::Range;

/// Shards begin at multiples of this many elements: `nccl_start_alignment_factor` of DeepSpeed's
/// stages 1 and 2.
const ALIGNMENT: usize = 2;

/// This rank's range of `things`, which the ranks of `group` divide evenly, in rank order.
pub(super) fn even(group: &Comm, things: usize) -> Range<usize> {
    let each = things / group.size();
    group.rank() * each..(group.rank() + 1) * each
}

/// A group of tensors that are joined and cut into equal shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flat {
    /// Elements of all tensors together.
    pub numel: usize,
    pub ranks: usize,
}

impl Flat {
    /// Elements of all tensors and the padding: the next multiple of 2 x ranks.
    pub fn padded(self) -> usize {
        self.numel.next_multiple_of(ALIGNMENT * self.ranks)
    }

    /// Elements of each rank's shard, padding included.
    pub fn shard_numel(self) -> usize {
        self.padded() / self.ranks
    }

    /// `rank`'s elements, as offsets in the group. Empty if the rank holds only padding.
    pub fn range(self, rank: usize) -> Range<usize> {
        let start = rank * self.shard_numel();
        start.min(self.numel)..(start + self.shard_numel()).min(self.numel)
    }

    /// Elements of `rank`'s shard that are padding.
    pub fn padding(self, rank: usize) -> usize {
        self.shard_numel() - self.range(rank).len()
    }
}

/// The shards of one parameter group, as ranges of the model's flat buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlatGroup {
    pub start: usize,
    pub flat: Flat,
    /// Whether its tensors belong to experts.
    pub expert: bool,
}

impl FlatGroup {
    /// The groups of a model. `ranks` hold the experts (`true`), and all else.
    pub fn all(params: &Params, ranks: impl Fn(bool) -> usize) -> Vec<FlatGroup> {
        let of = |group: &Group| FlatGroup {
            start: group.range.start,
            flat: Flat { numel: group.range.len(), ranks: ranks(group.expert) },
            expert: group.expert,
        };
        params.layout().groups.iter().map(of).collect()
    }

    /// The whole group.
    pub fn whole(self) -> Range<usize> {
        self.start..self.start + self.flat.numel
    }

    /// `rank`'s elements.
    pub fn range(self, rank: usize) -> Range<usize> {
        let held = self.flat.range(rank);
        self.start + held.start..self.start + held.end
    }

    /// The ranks that hold some of `elements`, each with its slice of them.
    pub fn owners(self, elements: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let common = move |rank| {
            let held = self.range(rank);
            (rank, held.start.max(elements.start)..held.end.min(elements.end))
        };
        (0..self.flat.ranks).map(common).filter(|(_, held)| !held.is_empty())
    }
}

/// One tensor that is sharded on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharded {
    pub numel: usize,
    pub ranks: usize,
}

impl Sharded {
    /// Elements of each rank's shard, padding included.
    pub fn shard_numel(self) -> usize {
        self.numel.div_ceil(self.ranks)
    }

    /// `rank`'s elements, as offsets in the tensor. Empty on the last ranks of a tensor with few
    /// elements.
    pub fn range(self, rank: usize) -> Range<usize> {
        let start = rank * self.shard_numel();
        start.min(self.numel)..(start + self.shard_numel()).min(self.numel)
    }
}

/// The rank that gets each of several whole things, given by their sizes, so that the fullest rank
/// holds little more than the mean. Of two rules it takes the one whose fullest holds less: each
/// thing, the largest first, to the rank with the least; or dealt back and forth, the largest
/// first.
pub fn owners(sizes: &[usize], ranks: usize) -> Vec<usize> {
    let mut largest_first: Vec<usize> = (0..sizes.len()).collect();
    largest_first.sort_by_key(|&thing| std::cmp::Reverse(sizes[thing]));
    let deal = |rank: &dyn Fn(usize, &[usize]) -> usize| {
        let mut held = vec![0; ranks];
        let mut owners = vec![0; sizes.len()];
        for (turn, &thing) in largest_first.iter().enumerate() {
            owners[thing] = rank(turn, &held);
            held[owners[thing]] += sizes[thing];
        }
        (held.into_iter().max(), owners)
    };
    let least = |_, held: &[usize]| (0..ranks).min_by_key(|&rank| held[rank]).unwrap_or(0);
    let back_and_forth = |turn: usize, _: &[usize]| {
        let at = turn % (2 * ranks);
        at.min(2 * ranks - 1 - at)
    };
    let dealt = [deal(&least), deal(&back_and_forth)];
    dealt.into_iter().min_by_key(|(fullest, _)| *fullest).unwrap_or_default().1
}

/// The owners of the things of several units, which are each dealt as [`owners`] says. The ranks
/// take turns in having most of a unit, so that they also hold about as much of all units.
pub fn owners_by_unit(units: &[Vec<usize>], ranks: usize) -> Vec<Vec<usize>> {
    let mut held = vec![0; ranks];
    let in_turn = |sizes: &Vec<usize>| {
        let parts = owners(sizes, ranks);
        let mut of_unit = vec![0; ranks];
        parts.iter().zip(sizes).for_each(|(&part, size)| of_unit[part] += size);
        let mut largest_first: Vec<usize> = (0..ranks).collect();
        largest_first.sort_by_key(|&part| std::cmp::Reverse(of_unit[part]));
        let mut least_first: Vec<usize> = (0..ranks).collect();
        least_first.sort_by_key(|&rank| held[rank]);
        let mut rank_of = vec![0; ranks];
        for (part, rank) in largest_first.into_iter().zip(least_first) {
            rank_of[part] = rank;
            held[rank] += of_unit[part];
        }
        parts.into_iter().map(|part| rank_of[part]).collect()
    };
    units.iter().map(in_turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Padded length, part, and the ranks that hold padding: DeepSpeed's own cases, and the run
    /// that could not be converted.
    #[test]
    fn groups_are_padded_as_deepspeed_pads() {
        type Vector = (usize, usize, usize, usize, &'static [(usize, usize)]);
        let vectors: [Vector; 6] = [
            (10, 4, 16, 4, &[(2, 2), (3, 4)]),
            (5, 4, 8, 2, &[(2, 1), (3, 2)]),
            (9, 4, 16, 4, &[(2, 3), (3, 4)]),
            (24_960, 8, 24_960, 3_120, &[]),
            // 65 layer norms of width 4,096 on 768 ranks.
            (266_240, 768, 267_264, 348, &[(765, 328), (766, 348), (767, 348)]),
            (1, 2, 4, 2, &[(0, 1), (1, 2)]),
        ];
        for (numel, ranks, padded, part, padding) in vectors {
            let flat = Flat { numel, ranks };
            assert_eq!((flat.padded(), flat.shard_numel()), (padded, part), "{flat:?}");
            let held: Vec<(usize, usize)> = (0..ranks)
                .map(|r| (r, flat.padding(r)))
                .filter(|&(_, padding)| padding > 0)
                .collect();
            assert_eq!(held, padding, "{flat:?}");
        }
        let few = Flat { numel: 16, ranks: 1024 };
        assert_eq!((few.padded(), few.shard_numel()), (2048, 2));
        assert_eq!((0..1024).filter(|&r| few.padding(r) == few.shard_numel()).count(), 1016);
    }

    /// Two groups on three ranks: each group has its own padding, and ranges are offsets in the
    /// flat buffers.
    #[test]
    fn each_group_is_cut_by_itself() {
        let params = Params::new();
        for (name, shape) in [("a", &[3, 4][..]), ("gain", &[4]), ("b", &[2, 5]), ("bias", &[3])] {
            params.declare(name, shape, crate::tensor::Init::Constant(0.0)).unwrap();
        }
        let groups = FlatGroup::all(&params, |_| 3);
        let [decays, rest] = groups[..] else {
            panic!("{groups:?}")
        };
        assert_eq!((decays.whole(), rest.whole()), (0..22, 22..29));
        assert_eq!([0, 1, 2].map(|rank| decays.range(rank)), [0..8, 8..16, 16..22]);
        assert_eq!([0, 1, 2].map(|rank| rest.range(rank)), [22..26, 26..29, 29..29]);
        assert_eq!([0, 1, 2].map(|rank| rest.flat.padding(rank)), [0, 1, 4]);
        assert_eq!(decays.owners(5..17).collect::<Vec<_>>(), [(0, 5..8), (1, 8..16), (2, 16..17)]);
        assert_eq!(rest.owners(22..29).collect::<Vec<_>>(), [(0, 22..26), (1, 26..29)]);
        // What is declared in which order shows in the places.
        let places: Vec<_> = params.specs().iter().map(|spec| spec.range()).collect();
        assert_eq!(places, [0..12, 22..26, 12..22, 26..29]);
    }

    /// Six of eight matrices are dealt worse by the usual rule, which is within 4/3 of the best.
    #[test]
    fn the_fullest_owner_holds_what_the_better_rule_gives_it() {
        let fullest = |sizes: &[usize], ranks: usize| {
            let owners = owners(sizes, ranks);
            let held = |rank| sizes.iter().zip(&owners).filter(move |pair| *pair.1 == rank);
            (0..ranks).map(|rank| held(rank).map(|pair| pair.0).sum::<usize>()).max()
        };
        assert_eq!(fullest(&[9, 2, 6, 5, 4, 12, 8, 4], 2), Some(25), "back and forth");
        assert_eq!(
            fullest(&[3, 1, 4, 4], 2),
            Some(7),
            "largest first; back and forth gives 7, too"
        );
        assert_eq!(fullest(&[5, 1, 1, 1, 1, 1], 2), Some(5), "largest first");
        assert_eq!(fullest(&[], 3), Some(0));
        assert_eq!(owners(&[7, 7, 7], 4), [0, 1, 2], "some ranks hold nothing");
        // Four blocks of a GPT on 4 ranks: 4, 4, 3 and 1 in each, and 12 for each rank in all.
        let blocks = vec![vec![3, 1, 4, 4]; 4];
        let mut held = [0; 4];
        for (owners, sizes) in owners_by_unit(&blocks, 4).iter().zip(&blocks) {
            owners.iter().zip(sizes).for_each(|(&owner, size)| held[owner] += size);
        }
        assert_eq!(held.into_iter().max(), Some(13), "{held:?}");
    }

    proptest! {
        /// Also more ranks than elements: end to end, the ranks' shares are the elements, and
        /// padding fills equal parts.
        #[test]
        fn shares_end_to_end_are_everything(numel in 0usize..5_000, ranks in 1usize..600) {
            let flat = Flat { numel, ranks };
            let sharded = Sharded { numel, ranks };
            for ranges in [(0..ranks).map(|r| flat.range(r)).collect::<Vec<_>>(), (0..ranks).map(|r| sharded.range(r)).collect()] {
                prop_assert_eq!(ranges.iter().cloned().flatten().collect::<Vec<_>>(), (0..numel).collect::<Vec<_>>());
            }
            prop_assert_eq!((0..ranks).map(|r| flat.range(r).len() + flat.padding(r)).sum::<usize>(), flat.padded());
            prop_assert!(flat.padded() - numel < 2 * ranks && flat.padded().is_multiple_of(2 * ranks));
            prop_assert!((0..ranks).all(|r| sharded.range(r).len() <= sharded.shard_numel()));
        }

        #[test]
        fn every_element_has_one_owner(numel in 0usize..300, ranks in 1usize..40, a in 0usize..300, b in 0usize..300) {
            let flat = Flat { numel, ranks };
            let range = a.min(b).min(numel)..a.max(b).min(numel);
            let mut next = range.start;
            for (rank, held) in (FlatGroup { start: 0, flat, expert: false }).owners(range.clone()) {
                prop_assert_eq!(held.start, next);
                prop_assert!(!held.is_empty() && flat.range(rank).start <= held.start && held.end <= flat.range(rank).end);
                next = held.end;
            }
            prop_assert_eq!(next, range.end);
        }
    }
}
