//! The part of each sequence that a rank holds.

use std::ops::Range;
use std::sync::Arc;

/// The positions of a sequence whose tokens are on this rank, in the order of its rows: a few runs
/// of neighbouring positions. All sequences of a batch are sliced alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices(Arc<[Range<usize>]>);

/// Whole sequences.
impl Default for Slices {
    fn default() -> Slices {
        Slices::from(0)
    }
}

impl Slices {
    /// All positions from `first` on.
    pub fn from(first: usize) -> Slices {
        Slices::one(first..usize::MAX)
    }

    /// One run.
    pub fn one(run: Range<usize>) -> Slices {
        Slices::new(std::iter::once(run))
    }

    /// These runs, one after the other.
    pub fn new(runs: impl IntoIterator<Item = Range<usize>>) -> Slices {
        Slices(runs.into_iter().collect())
    }

    /// What `rows` of this rank's rows are: for each run of neighbours its first row and its
    /// positions.
    pub fn runs(&self, rows: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
        let mut start = 0usize; // of the run among the rows
        self.0.iter().filter_map(move |run| {
            let first = start;
            start = first.saturating_add(run.len());
            let common = rows.start.max(first)..rows.end.min(start);
            let positions = || run.start + common.start - first..run.start + common.end - first;
            (!common.is_empty()).then(|| (common.start, positions()))
        })
    }

    /// The positions of the first `rows` rows.
    pub fn positions(&self, rows: usize) -> impl Iterator<Item = usize> + '_ {
        self.runs(0..rows).flat_map(|(_, positions)| positions)
    }

    /// The slices that `rows` of this rank's rows are.
    pub fn part(&self, rows: Range<usize>) -> Slices {
        Slices::new(self.runs(rows).map(|(_, positions)| positions))
    }

    /// The rows of a rank with these slices.
    pub fn rows(&self) -> usize {
        self.0.iter().fold(0, |rows, run| rows.saturating_add(run.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_positions_of_their_runs() {
        let slices = Slices::new([2..4, 6..8]);
        assert_eq!(slices.rows(), 4);
        assert_eq!(slices.positions(4).collect::<Vec<_>>(), [2, 3, 6, 7]);
        assert_eq!(slices.runs(1..3).collect::<Vec<_>>(), [(1, 3..4), (2, 6..7)]);
        assert_eq!(slices.part(1..3), Slices::new([3..4, 6..7]));
        assert_eq!(slices.part(2..4), Slices::one(6..8));
        assert_eq!(Slices::from(5).part(1..3), Slices::one(6..8));
        assert_eq!(Slices::default().runs(0..3).collect::<Vec<_>>(), [(0, 0..3)]);
    }
}
