//! An all-to-all whose parts have different lengths, as when tokens travel to their experts. Nobody
//! knows in advance how long they are, so ranks first tell each other, and compare.

use super::{Call, CommError, Result};
use std::ops::Range;

/// How many elements each rank sends to each, and expects from each. All ranks have the same.
pub(super) struct Counts {
    ranks: usize,
    /// For each rank what it sends to each rank, then what it expects from each.
    all: Vec<u64>,
}

impl Counts {
    /// What one rank brings: what it sends to each rank, then what it expects from each.
    pub fn mine(sends: &[usize], expects: &[usize]) -> Vec<u64> {
        sends.iter().chain(expects).map(|&count| count as u64).collect()
    }

    /// From what all ranks have brought, in rank order.
    ///
    /// # Errors
    /// [`CommError::Invalid`], on every rank, if a rank expects another number of elements than the
    /// sender has for it.
    pub fn of_all(call: &Call, ranks: usize, all: Vec<u64>) -> Result<Counts> {
        let counts = Counts { ranks, all };
        for from in 0..ranks {
            for to in 0..ranks {
                let sends = counts.sends(from, to);
                let expects = counts.all[2 * to * ranks + ranks + from];
                if sends as u64 != expects {
                    let why = format!(
                        "rank {from} of the group sends {sends} elements to rank {to}, which expects {expects}: \
                         send the counts first, with all_to_all"
                    );
                    return Err(CommError::invalid(call, why));
                }
            }
        }
        Ok(counts)
    }

    /// Elements that `from` sends to `to`.
    pub fn sends(&self, from: usize, to: usize) -> usize {
        self.all[2 * from * self.ranks + to] as usize
    }

    /// Where the part for `to` lies among the elements that `from` sends.
    pub fn part(&self, from: usize, to: usize) -> Range<usize> {
        let start = (0..to).map(|earlier| self.sends(from, earlier)).sum();
        start..start + self.sends(from, to)
    }

    /// Where the part from `from` lies among the elements that `to` receives.
    pub fn place(&self, from: usize, to: usize) -> Range<usize> {
        let start = (0..from).map(|earlier| self.sends(earlier, to)).sum();
        start..start + self.sends(from, to)
    }

    /// Where what `rank` receives lies in a vector that begins with what it sends.
    pub fn room(&self, rank: usize) -> Range<usize> {
        let sent = (0..self.ranks).map(|to| self.sends(rank, to)).sum();
        let received: usize = (0..self.ranks).map(|from| self.sends(from, rank)).sum();
        sent..sent + received
    }

    /// Elements that `rank` sends to others.
    pub fn leaving(&self, rank: usize) -> usize {
        self.others(rank).map(|to| self.sends(rank, to)).sum()
    }

    /// The most that one rank sends to others, or receives from them.
    pub fn most(&self) -> usize {
        let arriving = |rank| self.others(rank).map(|from| self.sends(from, rank)).sum();
        (0..self.ranks)
            .map(|rank| self.leaving(rank).max(arriving(rank)))
            .max()
            .unwrap_or(0)
    }

    fn others(&self, rank: usize) -> impl Iterator<Item = usize> + use<> {
        (0..self.ranks).filter(move |&other| other != rank)
    }
}
