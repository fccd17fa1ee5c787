//! How ranks divide a range of the flat buffers in stages 1 and 2: cut into equal slices, or by
//! whole matrices.

use crate::parallel::Replicas;
use crate::parallel::partition::{Flat, FlatGroup, owners};
use crate::tensor::{Params, Spec, Stored};
use std::ops::Range;
use std::sync::Arc;

/// A range of the flat buffers with parameters of one group, and its parts by rank.
#[derive(Clone)]
pub(super) enum Division {
    /// Cut anywhere.
    Cut(FlatGroup),
    /// Matrices that each have one owner, as Muon needs them.
    Owned(Owned),
}

/// Whole matrices, one after the other.
#[derive(Clone)]
pub(super) struct Owned {
    range: Range<usize>,
    /// Each matrix's place in the flat buffers, and its owner.
    matrices: Vec<(Range<usize>, usize)>,
    ranks: usize,
}

impl Division {
    /// All ranges of a model, from its start to its end. With `owned`, hidden matrices have owners.
    pub fn all(params: &Params, replicas: &Replicas, owned: bool) -> Vec<Division> {
        let ranks = |expert| replicas.of(expert).size();
        if !owned {
            return FlatGroup::all(params, ranks).into_iter().map(Division::Cut).collect();
        }
        let mut specs = params.specs().to_vec();
        specs.sort_by_key(|spec| spec.range().start);
        let kind = |spec: &Spec| (spec.decays(), spec.is_hidden_matrix());
        let runs = specs.chunk_by(|one, next| kind(one) == kind(next));
        runs.map(|run| Division::of(run, ranks(false))).collect()
    }

    /// Parameters that follow each other.
    fn of(run: &[Arc<Spec>], ranks: usize) -> Division {
        let sizes: Vec<usize> = run.iter().map(|spec| spec.numel()).collect();
        let numel = sizes.iter().sum();
        let start = run[0].range().start;
        if !run[0].is_hidden_matrix() {
            return Division::Cut(FlatGroup { start, flat: Flat { numel, ranks }, expert: false });
        }
        let matrices = run.iter().map(|spec| spec.range()).zip(owners(&sizes, ranks)).collect();
        Division::Owned(Owned { range: start..start + numel, matrices, ranks })
    }

    /// Whether its parameters belong to experts.
    pub fn expert(&self) -> bool {
        matches!(self, Division::Cut(group) if group.expert)
    }

    /// Its place in the flat buffers.
    pub fn whole(&self) -> Range<usize> {
        match self {
            Division::Cut(group) => group.whole(),
            Division::Owned(owned) => owned.range.clone(),
        }
    }

    /// What `rank` updates, as ranges of the flat buffers.
    pub fn held(&self, rank: usize) -> Vec<Range<usize>> {
        match self {
            Division::Cut(group) => vec![group.range(rank)],
            Division::Owned(owned) => owned.of(rank).cloned().collect(),
        }
    }

    /// The ranks that update some of `elements`, each with its slice of them, in their order.
    pub fn owners(&self, elements: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let common = |owner, held: &Range<usize>| {
            (owner, held.start.max(elements.start)..held.end.min(elements.end))
        };
        match self {
            Division::Cut(group) => group.owners(elements.clone()).collect(),
            Division::Owned(owned) => {
                let all = owned.matrices.iter().map(|(held, owner)| common(*owner, held));
                all.filter(|(_, held)| !held.is_empty()).collect()
            }
        }
    }

    /// Elements that a step gathers. The few with which equal slices are filled up do not count,
    /// those with which owners are do.
    pub fn gathered(&self) -> usize {
        match self {
            Division::Cut(group) => group.flat.numel,
            Division::Owned(_) => self.padded(),
        }
    }

    /// Elements that an all-gather of it carries: equal parts, filled up with padding.
    pub fn padded(&self) -> usize {
        match self {
            Division::Cut(group) => group.flat.padded(),
            Division::Owned(owned) => owned.ranks * owned.fullest(),
        }
    }

    /// Its values, as the buffer of an all-gather: `rank` has updated its own.
    pub fn packed<T: Stored>(&self, mut values: Vec<T>, rank: usize) -> Vec<T> {
        match self {
            Division::Cut(_) => {
                values.resize(self.padded(), T::zeroed());
                values
            }
            Division::Owned(owned) => {
                let mut all = vec![T::zeroed(); self.padded()];
                let mine = owned.places().filter(|(owner, ..)| *owner == rank);
                for (_, at, held) in mine {
                    all[at..at + held.len()].copy_from_slice(&values[held]);
                }
                all
            }
        }
    }

    /// Its values, from what an all-gather has brought.
    pub fn unpacked<T: Stored>(&self, mut all: Vec<T>) -> Vec<T> {
        match self {
            Division::Cut(group) => {
                all.truncate(group.flat.numel);
                all
            }
            Division::Owned(owned) => {
                let mut values = vec![T::zeroed(); owned.range.len()];
                for (_, at, held) in owned.places() {
                    values[held.clone()].copy_from_slice(&all[at..at + held.len()]);
                }
                values
            }
        }
    }
}

impl Owned {
    /// The matrices of one rank.
    fn of(&self, rank: usize) -> impl Iterator<Item = &Range<usize>> {
        self.matrices
            .iter()
            .filter(move |(_, owner)| *owner == rank)
            .map(|(held, _)| held)
    }

    /// Elements of the rank that holds most.
    fn fullest(&self) -> usize {
        let held = |rank| self.of(rank).map(Range::len).sum();
        (0..self.ranks).map(held).max().unwrap_or(0)
    }

    /// Each matrix's owner, its offset in the buffer of an all-gather, and its place in this range.
    fn places(&self) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
        let fullest = self.fullest();
        let mut next: Vec<usize> = (0..self.ranks).map(|rank| rank * fullest).collect();
        self.matrices.iter().map(move |(held, owner)| {
            let at = next[*owner];
            next[*owner] += held.len();
            (*owner, at, held.start - self.range.start..held.end - self.range.start)
        })
    }
}
