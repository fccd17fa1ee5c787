//! A rank that waits for others checks whether they can still come.
//!
//! The wait is an error as soon as this rank knows that others have failed or ended, or that all ranks wait for each other. So a
//! rank that waits for more than 100 ms reports it to the others. A late rank is only a notice at first, and an error at the
//! deadline.

use super::agreement::{self, Agreement};
use super::{notices, started};
use crate::comm::transport::board::{Awaited, Board, Notice, Wait};
use crate::comm::transport::lateness::{self, Told, ago, lasting};
use crate::comm::transport::run::{DEADLOCK, SAME_CALLS};
use crate::comm::{Call, CommError, Result};
use std::time::{Duration, Instant};

/// A rank does not report a wait shorter than this.
const QUIET: Duration = Duration::from_millis(100);
/// A deadlock does not go away. So a rank that finds one waits this long for the reports of the other ranks, to show them too.
const REPORTS: Duration = Duration::from_secs(2);

/// A wait of this rank.
pub(super) struct Waiting<'a> {
    group: &'a Agreement,
    call: Call,
    words: String,
    what: Awaited,
    start: Instant,
    told_others: bool,
    stuck: Option<Instant>,
    /// Ranks with a notice that they are late, and since when each has been computing.
    late: Vec<(usize, Told, Instant)>,
}

/// Waits until `ready`. Returns an error if `look` does, if the wait can never end, or at the deadline. `in_words` returns
/// the call and what it waits for. Meanwhile the library gets the collectives that other ranks may be waiting for.
pub(super) fn wait(
    group: &Agreement,
    call: &Call,
    in_words: impl FnOnce() -> (String, Awaited),
    mut ready: impl FnMut() -> Result<bool>,
    look: impl Fn() -> Result<()>,
) -> Result<()> {
    if ready()? {
        return Ok(());
    }
    let (words, what) = in_words();
    let start = Instant::now();
    let mut waiting = Waiting {
        group,
        call: *call,
        words,
        what,
        start,
        told_others: false,
        stuck: None,
        late: Vec::new(),
    };
    while !ready()? {
        look()?;
        waiting.look()?;
        started::post_agreed();
        std::thread::yield_now();
    }
    if waiting.told_others {
        notices::tell(Notice::GoesOn);
    }
    waiting
        .late
        .iter()
        .for_each(|(late, _, since)| lateness::say_it_came(*late, call, since.elapsed()));
    Ok(())
}

impl Waiting<'_> {
    /// Returns an error if the wait can never end, or has reached the deadline.
    fn look(&mut self) -> Result<()> {
        let reporter = &self.group.reporter;
        let waited = self.start.elapsed();
        if waited < QUIET.min(reporter.options.notice() / 2) {
            return Ok(());
        }
        if !self.told_others {
            self.told_others = true;
            let calls = agreement::calls();
            let sent = reporter.sent();
            let words = self.words.clone();
            notices::tell(Notice::Waits(Wait {
                what: self.what.clone(),
                words,
                calls,
                sent,
            }));
        }
        if notices::look(|board| board.is_stuck(reporter.rank)) && self.reports_are_in(waited) {
            let what = "deadlock: ranks wait for each other";
            return Err(broken(self.group, &self.words, self.start, what, DEADLOCK));
        }
        if waited >= reporter.options.deadline {
            let what = lateness::too_late(&self.missing(), &self.call, waited);
            return Err(broken(
                self.group,
                &self.words,
                self.start,
                &what,
                lateness::TOO_LATE,
            ));
        }
        if waited >= reporter.options.notice() {
            self.say_who_is_late(waited);
        }
        Ok(())
    }

    /// Whether every rank has reported what it does, or has had the time to.
    fn reports_are_in(&mut self, waited: Duration) -> bool {
        let stuck = *self.stuck.get_or_insert_with(Instant::now);
        let reporter = &self.group.reporter;
        let silent = |board: &Board| {
            (0..reporter.ranks).any(|rank| board.wait(rank).is_none() && !board.is_over(rank))
        };
        stuck.elapsed() >= REPORTS || waited >= reporter.options.deadline || !notices::look(silent)
    }

    /// Prints which ranks are late. Several ranks may wait for the same ranks: the lowest of them prints.
    fn say_who_is_late(&mut self, waited: Duration) {
        let reporter = &self.group.reporter;
        let missing = self.missing();
        let speaks = self
            .group
            .members
            .iter()
            .find(|member| !missing.contains(member));
        if speaks.is_some_and(|&speaks| speaks != reporter.rank) {
            return;
        }
        for late in missing
            .into_iter()
            .filter(|&rank| notices::look(|board| board.wait(rank).is_none()))
        {
            // This rank knows no better time than that of the last call they shared.
            let since = reporter.seen(late).map_or(self.start, |(_, at)| at);
            let (told, _) = lateness::due(&reporter.options, since.elapsed());
            match self.late.iter_mut().find(|(rank, ..)| *rank == late) {
                Some((_, before, _)) if *before == told => continue,
                Some((_, before, _)) => *before = told,
                None => self.late.push((late, told, since)),
            }
            lateness::say(
                told,
                late,
                reporter.rank,
                &self.call,
                waited,
                &doing(self.group, late),
            );
        }
    }

    /// The ranks that this one waits for, as far as it knows.
    fn missing(&self) -> Vec<usize> {
        let same = |rank: usize| {
            notices::look(|board| board.wait(rank).is_some_and(|wait| wait.what == self.what))
        };
        match &self.what {
            Awaited::Message {
                lane: (_, from, _), ..
            } => vec![*from],
            Awaited::Collective { members, .. } => members
                .iter()
                .copied()
                .filter(|&rank| !same(rank))
                .collect(),
        }
    }
}

/// Reads what other ranks have reported. Returns an error if a rank has failed, or if `gone` finds that an awaited rank has
/// ended.
pub(super) fn look_around(
    group: &Agreement,
    call: &Call,
    gone: impl FnOnce(&Board) -> Option<usize>,
) -> Result<()> {
    let rank = group.reporter.rank;
    let (failure, gone) = notices::hear(|board| {
        let failure = board
            .failures()
            .first()
            .map(|(rank, why)| format!("rank {rank} failed: {why}"));
        (failure, gone(board))
    });
    match (failure, gone) {
        (Some(cause), _) => Err(CommError::Stopped {
            rank,
            call: call.to_string(),
            cause,
        }),
        (None, Some(gone)) => {
            let what = format!("rank {gone} ended, and never entered {call}");
            Err(broken(
                group,
                &group.reporter.in_words(call),
                Instant::now(),
                &what,
                SAME_CALLS,
            ))
        }
        (None, None) => Ok(()),
    }
}

/// An error with a line for every rank of the world.
fn broken(group: &Agreement, words: &str, start: Instant, what: &str, help: &str) -> CommError {
    let mut text = what.to_string();
    for rank in 0..group.reporter.ranks {
        let doing = if rank == group.reporter.rank {
            format!("waits in {words}{}", lasting(start))
        } else {
            doing(group, rank)
        };
        text += &format!("\n  rank {rank}  {doing}");
    }
    CommError::Broken(format!("{text}\nhelp: {help}"))
}

/// Describes what a different rank is doing, as far as this one knows.
fn doing(group: &Agreement, rank: usize) -> String {
    let (waits, ended) = notices::look(|board| {
        (
            board.wait(rank).map(|wait| wait.words.clone()),
            board.has_ended(rank),
        )
    });
    match (waits, group.reporter.seen(rank)) {
        (Some(words), _) => format!("waits in {words}"),
        (None, _) if ended => "ended".to_string(),
        (None, Some((call, at))) => format!("was last seen in {call}{}", ago(at)),
        (None, None) => "has not been seen".to_string(),
    }
}
