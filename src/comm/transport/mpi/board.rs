//! The board: what processes have reported about themselves, and what follows from it.
//!
//! No rank sees all ranks at once. But a rank that waits cannot do anything else. So its report
//! holds until it reports that it goes on. Whether it ever can go on follows from the reports of
//! the others ([`Board::is_stuck`]). This needs no clock: the counts of collectives and messages
//! show whether the awaited call or message may still be in flight.

use crate::comm::{CallInfo, CommError, Unreceived};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A rank's report to all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Notice {
    /// The rank waits, and has waited for a while.
    Waits(Wait),
    /// The rank no longer waits.
    GoesOn,
    /// The rank's part is over.
    Ended(Ending),
    /// The rank has failed, and this is why.
    Failed(CommError),
}

/// Numbers of collectives, by group.
pub(super) type Counts = Vec<(u64, u64)>;

/// A wait, described by the rank that waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wait {
    pub what: Awaited,
    pub call: CallInfo,
    /// The collectives that the rank has entered.
    pub calls: Counts,
    /// The messages that the rank has sent.
    pub sent: Vec<(Lane, u64)>,
}

/// A rank's calls and messages by the end of its part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Ending {
    pub calls: Counts,
    /// How many messages the rank has sent on each lane, and the latest send.
    pub sent: Vec<(Lane, u64, CallInfo)>,
    pub received: Vec<(Lane, u64)>,
}

/// The event that a rank waits for. Ranks have their numbers in the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Awaited {
    /// Until all members enter the group's collective of this number.
    Collective { group: u64, number: u64, members: Vec<usize> },
    /// One more message than it has received.
    Message { lane: Lane, received: u64 },
}

/// A queue of messages from a rank or to it: group, the other rank, tag.
pub(super) type Lane = (u64, usize, u16);

/// The latest notice of each rank.
#[derive(Default)]
pub(super) struct Board {
    notices: HashMap<usize, Notice>,
}

impl Board {
    pub fn note(&mut self, rank: usize, notice: Notice) {
        self.notices.insert(rank, notice);
    }

    /// A rank's wait, if it has reported one.
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
    pub fn is_over(&self, rank: usize) -> bool {
        matches!(self.notices.get(&rank), Some(Notice::Ended(_) | Notice::Failed(_)))
    }

    /// The ranks that have failed, and why, in rank order.
    pub fn failures(&self) -> Vec<(usize, &CommError)> {
        let mut failures = Vec::new();
        for (&rank, notice) in &self.notices {
            if let Notice::Failed(why) = notice {
                failures.push((rank, why));
            }
        }
        failures.sort_unstable_by_key(|(rank, _)| *rank);
        failures
    }

    /// Whether a rank below `rank` reports in full what `failure`, the failure of `rank`, would
    /// repeat. A rank that was stopped by the failure of another one reports a single line.
    pub fn lower_rank_reports(&self, rank: usize, failure: &CommError) -> bool {
        let CommError::RankFailed { why: own, .. } = failure else {
            return false;
        };
        let own_line = own.lines().next().unwrap_or_default();
        let lower = self.failures().into_iter().take_while(|(other, _)| *other < rank);
        let mut in_full = lower.filter_map(|(_, error)| match error {
            CommError::RankFailed { cause: Some(cause), .. }
                if matches!(**cause, CommError::Stopped { .. }) =>
            {
                None
            }
            CommError::RankFailed { why, .. } => Some((why, error)),
            _ => None,
        });
        in_full.any(|(why, error)| why.starts_with(own_line) || waited_for_the_same(error, failure))
    }

    /// A member that has ended before the group's collective `number`, if there is one.
    pub fn who_will_not_come(&self, group: u64, number: u64, members: &[usize]) -> Option<usize> {
        members
            .iter()
            .copied()
            .find(|&rank| self.has_ended(rank) && self.will_not_come(rank, group, number))
    }

    /// Whether `rank` has reported fewer than `number` collectives in the group, and cannot enter
    /// more while that report holds.
    fn will_not_come(&self, rank: usize, group: u64, number: u64) -> bool {
        let calls = match self.notices.get(&rank) {
            Some(Notice::Waits(wait)) => &wait.calls,
            Some(Notice::Ended(ending)) => &ending.calls,
            _ => return false,
        };
        // A member's report lists a group even before its first call (`Agreement::new`).
        count(calls, group) < number
    }

    /// Once all ranks have ended: messages that were not received.
    pub fn unreceived(&self) -> Vec<Unreceived> {
        let mut unreceived = Vec::new();
        for (&from, notice) in &self.notices {
            let Notice::Ended(ending) = notice else {
                continue;
            };
            for ((group, to, tag), sent, latest) in &ending.sent {
                let Some(Notice::Ended(other)) = self.notices.get(to) else {
                    continue;
                };
                let left = sent - count(&other.received, (*group, from, *tag));
                if left > 0 {
                    unreceived.push(Unreceived {
                        from,
                        to: *to,
                        count: left,
                        latest: latest.clone(),
                    });
                }
            }
        }
        // All processes list them in the same order.
        unreceived.sort_by_key(|one| (one.from, one.to, one.count, one.latest.to_string()));
        unreceived
    }

    /// Whether `rank` waits for what can no longer happen, because the ranks that it waits for wait
    /// too. The notices need no common clock: none of these ranks can continue before a different
    /// one of them does. So if all have waited, all still wait.
    pub fn is_stuck(&self, rank: usize) -> bool {
        let mut stuck: Vec<usize> =
            self.notices.keys().copied().filter(|&rank| self.wait(rank).is_some()).collect();
        loop {
            let before = stuck.len();
            let still = |rank: usize| {
                let is_over = |rank: &usize| stuck.contains(rank) || self.has_ended(*rank);
                match self.wait(rank).map(|wait| &wait.what) {
                    Some(Awaited::Collective { group, number, members }) => {
                        members.iter().any(|member| {
                            is_over(member) && self.will_not_come(*member, *group, *number)
                        })
                    }
                    Some(Awaited::Message { lane: (group, from, tag), received }) => {
                        let sent = |wait: &Wait| count(&wait.sent, (*group, rank, *tag));
                        stuck.contains(from)
                            && self.wait(*from).is_some_and(|wait| sent(wait) <= *received)
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

/// Whether both ranks waited for the same ranks until their deadlines. How long each has waited may
/// differ.
fn waited_for_the_same(a: &CommError, b: &CommError) -> bool {
    match (a.reason(), b.reason()) {
        (
            CommError::DeadlinePassed { missing: a, .. },
            CommError::DeadlinePassed { missing: b, .. },
        ) => a == b,
        _ => false,
    }
}

fn count<K: PartialEq>(counts: &[(K, u64)], key: K) -> u64 {
    counts.iter().find(|(other, _)| *other == key).map_or(0, |(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{CallKind, Dtype};
    use std::time::Duration;

    fn call(kind: CallKind) -> CallInfo {
        CallInfo {
            kind,
            dtype: Dtype::F32,
            len: 1,
            op: None,
            peer: None,
            tag: 0,
            group: None,
            label: None,
            file: String::new(),
            line: 1,
            number: None,
        }
    }

    fn wait(what: Awaited, calls: &[(u64, u64)], sent: &[(u64, usize, u64)]) -> Notice {
        let sent = sent.iter().map(|&(group, to, count)| ((group, to, 0), count)).collect();
        Notice::Waits(Wait {
            what,
            call: call(CallKind::Barrier),
            calls: calls.to_vec(),
            sent,
        })
    }

    fn message(from: usize, received: u64) -> Awaited {
        Awaited::Message { lane: (0, from, 0), received }
    }

    fn collective(group: u64, number: u64, members: &[usize]) -> Awaited {
        Awaited::Collective { group, number, members: members.to_vec() }
    }

    fn board(notices: &[(usize, Notice)]) -> Board {
        let mut board = Board::default();
        for (rank, notice) in notices {
            board.note(*rank, notice.clone());
        }
        board
    }

    #[test]
    fn ranks_that_wait_for_each_others_messages_are_stuck() {
        let both = [
            (0, wait(message(1, 2), &[], &[(0, 1, 5)])),
            (1, wait(message(0, 5), &[], &[(0, 0, 2)])),
        ];
        assert!(board(&both).is_stuck(0) && board(&both).is_stuck(1));
        // A message is still under way: rank 1 will go on, and may send.
        let one = [
            (0, wait(message(1, 2), &[], &[(0, 1, 6)])),
            (1, wait(message(0, 5), &[], &[(0, 0, 2)])),
        ];
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
        let world = collective(0, 4, &[0, 1, 2]);
        let part = collective(7, 2, &[0, 1]);
        let notices = [
            (0, wait(world, &[(0, 4), (7, 1)], &[])),
            (1, wait(part, &[(0, 3), (7, 2)], &[])),
        ];
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
        let ended =
            board(&[(1, Notice::Ended(Ending { calls: vec![(0, 3)], ..Ending::default() }))]);
        assert_eq!(ended.who_will_not_come(0, 4, &[0, 1]), Some(1));
        assert_eq!(ended.who_will_not_come(0, 3, &[0, 1]), None);
        assert_eq!(ended.who_will_not_come(9, 1, &[0, 1]), Some(1));
    }

    /// What a rank has failed with.
    fn failed(rank: usize, error: &CommError) -> CommError {
        CommError::of_rank(rank, &error.clone().into())
    }

    fn deadline_passed(milliseconds: u64) -> CommError {
        CommError::DeadlinePassed {
            missing: vec![2],
            call: Box::new(call(CallKind::Barrier)),
            waited: Duration::from_millis(milliseconds),
            report: Box::default(),
        }
    }

    #[test]
    fn the_lowest_rank_that_has_not_been_stopped_reports_in_full() {
        let [first, second] = [1000, 1001].map(deadline_passed);
        let late = board(&[(0, Notice::Failed(failed(0, &first)))]);
        assert!(late.lower_rank_reports(1, &failed(1, &second)));
        assert!(!late.lower_rank_reports(0, &failed(0, &first)));
        // Rank 1's deadline passes first, and that stops rank 0.
        let stopped = CommError::Stopped {
            rank: 0,
            call: Box::new(call(CallKind::Barrier)),
            cause: Box::new(failed(1, &first)),
        };
        let mut stopped = board(&[(0, Notice::Failed(failed(0, &stopped)))]);
        assert!(!stopped.lower_rank_reports(1, &failed(1, &first)));
        stopped.note(1, Notice::Failed(failed(1, &first)));
        assert!(stopped.lower_rank_reports(3, &failed(3, &second)));
        // Others fail with errors of their own.
        assert!(
            !stopped.lower_rank_reports(3, &CommError::of_rank(3, &anyhow::anyhow!("no disk")))
        );
    }

    #[test]
    fn a_message_of_another_tag_does_not_help() {
        let stuck = |tag| {
            let sent = Wait {
                what: message(0, 0),
                call: call(CallKind::Recv),
                calls: vec![],
                sent: vec![((0, 0, tag), 1)],
            };
            board(&[(0, wait(message(1, 0), &[], &[])), (1, Notice::Waits(sent))]).is_stuck(0)
        };
        assert!(stuck(7) && !stuck(0));
    }

    #[test]
    fn messages_that_nobody_received_are_counted_by_lane() {
        let ended = |sent: &[(Lane, u64)], received: &[(Lane, u64)]| {
            let sent =
                sent.iter().map(|&(lane, count)| (lane, count, call(CallKind::Send))).collect();
            Notice::Ended(Ending { calls: Vec::new(), sent, received: received.to_vec() })
        };
        let board = board(&[
            (0, ended(&[((0, 1, 0), 3), ((0, 1, 7), 2)], &[])),
            (1, ended(&[((5, 0, 0), 1)], &[((0, 0, 0), 3), ((0, 0, 7), 1)])),
        ]);
        let one = |from, to| Unreceived { from, to, count: 1, latest: call(CallKind::Send) };
        assert_eq!(board.unreceived(), [one(0, 1), one(1, 0)]);
    }

    #[test]
    fn failures_are_told_by_rank_and_end_its_part() {
        let error = |rank| CommError::RankFailed {
            rank,
            panicked: false,
            why: "the disk is full".into(),
            cause: None,
        };
        let failed = |rank| (rank, Notice::Failed(error(rank)));
        let board = board(&[
            failed(2),
            failed(1),
            (0, Notice::GoesOn),
            (3, Notice::Ended(Ending::default())),
        ]);
        assert_eq!(board.failures(), [(1, &error(1)), (2, &error(2))]);
        // A rank that has failed makes no more calls, and neither does one that has ended.
        assert_eq!(
            [0, 1, 2, 3, 4].map(|rank| board.is_over(rank)),
            [false, true, true, true, false]
        );
    }
}
