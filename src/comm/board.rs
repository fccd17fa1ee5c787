//! What ranks that are processes have told each other of themselves, and what follows from it.
//!
//! Nobody sees all ranks at once. But a rank that waits cannot do anything else, so what it said when it began to wait holds until
//! it says that it goes on; and whether it ever can follows from what the others said ([`Board::is_stuck`]). No clock is
//! asked: the counts of collectives and messages tell whether what a rank waits for may still be under way.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What a rank tells all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// It has been waiting for a moment.
    Waits(Wait),
    /// It no longer waits.
    GoesOn,
    /// Its part is over, after so many collectives in each group.
    Ended(Counts),
    /// It has failed, and why.
    Failed(String),
}

/// By group.
pub(super) type Counts = Vec<(u64, u64)>;

/// A wait, as the rank that waits describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wait {
    pub what: What,
    /// The call, for people.
    pub words: String,
    /// The collectives that it has come to.
    pub calls: Counts,
    /// The messages that it has sent: group, receiver, how many.
    pub sent: Vec<(u64, usize, u64)>,
}

/// What a rank waits for. Ranks are numbers in the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum What {
    /// That all members come to the group's collective of this number.
    Collective { group: u64, number: u64, members: Vec<usize> },
    /// One message more than it has received.
    Message { group: u64, from: usize, received: u64 },
}

/// The latest of each rank.
#[derive(Default)]
pub(super) struct Board {
    notices: HashMap<usize, Notice>,
}

impl Board {
    pub fn note(&mut self, rank: usize, notice: Notice) {
        self.notices.insert(rank, notice);
    }

    /// The wait that a rank is in, as far as is known.
    pub fn wait(&self, rank: usize) -> Option<&Wait> {
        match self.notices.get(&rank) {
            Some(Notice::Waits(wait)) => Some(wait),
            _ => None,
        }
    }

    pub fn has_ended(&self, rank: usize) -> bool {
        matches!(self.notices.get(&rank), Some(Notice::Ended(_)))
    }

    /// Whether a rank will make no more calls.
    #[cfg(feature = "mpi")]
    pub fn is_over(&self, rank: usize) -> bool {
        matches!(self.notices.get(&rank), Some(Notice::Ended(_) | Notice::Failed(_)))
    }

    /// The ranks that have failed, and why, by their numbers.
    pub fn failures(&self) -> Vec<(usize, &str)> {
        let mut failures = Vec::new();
        for (&rank, notice) in &self.notices {
            if let Notice::Failed(why) = notice {
                failures.push((rank, why.as_str()));
            }
        }
        failures.sort_unstable();
        failures
    }

    /// Of these members, one that has ended before the group's collective `number`.
    pub fn who_will_not_come(&self, group: u64, number: u64, members: &[usize]) -> Option<usize> {
        members.iter().copied().find(|&rank| self.has_ended(rank) && self.will_not_come(rank, group, number))
    }

    /// Whether `rank` has told that it has made fewer collectives in the group, and cannot make more as long as that holds.
    fn will_not_come(&self, rank: usize, group: u64, number: u64) -> bool {
        let calls = match self.notices.get(&rank) {
            Some(Notice::Waits(wait)) => &wait.calls,
            Some(Notice::Ended(calls)) => calls,
            _ => return false,
        };
        calls.iter().find(|(id, _)| *id == group).map_or(0, |(_, calls)| *calls) < number
    }

    /// Whether `rank` has told that it has sent no more than `received` messages to `to`, and cannot send more.
    fn will_not_send(&self, rank: usize, group: u64, to: usize, received: u64) -> bool {
        match self.notices.get(&rank) {
            Some(Notice::Waits(wait)) => {
                let sent = wait.sent.iter().find(|(id, receiver, _)| (*id, *receiver) == (group, to));
                sent.map_or(0, |(.., sent)| *sent) <= received
            }
            _ => false,
        }
    }

    /// Whether `rank` waits for what can no longer happen, because those it waits for wait likewise. What has been said by
    /// all of them must hold at once for that, and does: the first of them to go on would have needed another one first.
    pub fn is_stuck(&self, rank: usize) -> bool {
        let mut stuck: Vec<usize> = self.notices.keys().copied().filter(|&rank| self.wait(rank).is_some()).collect();
        loop {
            let before = stuck.len();
            let still = |rank: usize| {
                let is_over = |rank: &usize| stuck.contains(rank) || self.has_ended(*rank);
                match self.wait(rank).map(|wait| &wait.what) {
                    Some(What::Collective { group, number, members }) => {
                        members.iter().any(|member| is_over(member) && self.will_not_come(*member, *group, *number))
                    }
                    Some(What::Message { group, from, received }) => {
                        stuck.contains(from) && self.will_not_send(*from, *group, rank, *received)
                    }
                    None => false,
                }
            };
            let kept: Vec<usize> = stuck.iter().copied().filter(|&rank| still(rank)).collect();
            stuck = kept;
            if stuck.len() == before {
                return stuck.contains(&rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(what: What, calls: &[(u64, u64)], sent: &[(u64, usize, u64)]) -> Notice {
        Notice::Waits(Wait { what, words: String::new(), calls: calls.to_vec(), sent: sent.to_vec() })
    }

    fn message(from: usize, received: u64) -> What {
        What::Message { group: 0, from, received }
    }

    fn collective(group: u64, number: u64, members: &[usize]) -> What {
        What::Collective { group, number, members: members.to_vec() }
    }

    fn board(notices: &[(usize, Notice)]) -> Board {
        let mut board = Board::default();
        notices.iter().for_each(|(rank, notice)| board.note(*rank, notice.clone()));
        board
    }

    #[test]
    fn ranks_that_wait_for_each_others_messages_are_stuck() {
        let both = [(0, wait(message(1, 2), &[], &[(0, 1, 5)])), (1, wait(message(0, 5), &[], &[(0, 0, 2)]))];
        assert!(board(&both).is_stuck(0) && board(&both).is_stuck(1));
        // A message is still under way: rank 1 will go on, and may send.
        let one = [(0, wait(message(1, 2), &[], &[(0, 1, 6)])), (1, wait(message(0, 5), &[], &[(0, 0, 2)]))];
        assert!(!board(&one).is_stuck(0) && !board(&one).is_stuck(1));
    }

    #[test]
    fn nobody_is_stuck_who_waits_for_a_rank_that_computes() {
        let waits = [(0, wait(message(1, 0), &[], &[])), (1, wait(message(2, 0), &[], &[]))];
        assert!(!board(&waits).is_stuck(0));
        let mut waiting = board(&waits);
        waiting.note(2, wait(message(0, 0), &[], &[]));
        assert!((0..3).all(|rank| waiting.is_stuck(rank)));
        waiting.note(2, Notice::GoesOn);
        assert!((0..3).all(|rank| !waiting.is_stuck(rank)));
    }

    #[test]
    fn groups_that_are_entered_in_different_orders_are_stuck() {
        let (world, part) = (collective(0, 4, &[0, 1, 2]), collective(7, 2, &[0, 1]));
        let notices = [(0, wait(world, &[(0, 4), (7, 1)], &[])), (1, wait(part, &[(0, 3), (7, 2)], &[]))];
        // Rank 2 may come to the world's collective, but rank 1 does not.
        assert!(board(&notices).is_stuck(0) && board(&notices).is_stuck(1));
    }

    #[test]
    fn whoever_waits_in_the_same_collective_is_not_missing() {
        let same = collective(0, 4, &[0, 1]);
        let notices = [(0, wait(same.clone(), &[(0, 4)], &[])), (1, wait(same, &[(0, 4)], &[]))];
        assert!(!board(&notices).is_stuck(0));
    }

    #[test]
    fn whoever_has_ended_comes_to_no_later_collective() {
        let ended = board(&[(1, Notice::Ended(vec![(0, 3)]))]);
        assert_eq!(ended.who_will_not_come(0, 4, &[0, 1]), Some(1));
        assert_eq!(ended.who_will_not_come(0, 3, &[0, 1]), None);
        assert_eq!(ended.who_will_not_come(9, 1, &[0, 1]), Some(1));
    }

    #[test]
    fn failures_are_told_by_rank() {
        let failed = |why: &str| Notice::Failed(why.into());
        assert_eq!(board(&[(2, failed("b")), (1, failed("a")), (0, Notice::GoesOn)]).failures(), [(1, "a"), (2, "b")]);
    }
}
