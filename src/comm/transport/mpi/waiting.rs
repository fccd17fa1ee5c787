//! What a rank does while it waits for others: it looks whether they can still come.
//!
//! That others have failed or ended, or all wait for each other, is an error as soon as they have told; for that, a rank that
//! has waited for a moment tells the others. That one is only late is said after a while, and an error at the deadline.

use super::agreement::{self, Agreement};
use super::notices;
use crate::comm::transport::board::{Awaited, Board, Notice, Wait};
use crate::comm::transport::lateness::{self, Told, ago, lasting};
use crate::comm::transport::run::{DEADLOCK, SAME_CALLS};
use crate::comm::{Call, CommError, Result};
use std::time::{Duration, Instant};

/// A wait as short as this is nobody's business.
const QUIET: Duration = Duration::from_millis(100);

/// A wait of this rank.
pub(super) struct Waiting<'a> {
    group: &'a Agreement,
    call: Call,
    words: String,
    what: Awaited,
    start: Instant,
    told_others: bool,
    /// What has been said about whom, and since when that rank has computed.
    late: Vec<(usize, Told, Instant)>,
}

impl<'a> Waiting<'a> {
    pub fn start(group: &'a Agreement, call: Call, words: String, what: Awaited) -> Waiting<'a> {
        Waiting { group, call, words, what, start: Instant::now(), told_others: false, late: Vec::new() }
    }

    /// To be called again and again: an error if the wait cannot end well, or has lasted too long.
    pub fn look(&mut self) -> Result<()> {
        let reporter = &self.group.reporter;
        let waited = self.start.elapsed();
        if waited < QUIET.min(reporter.late.notice / 2) {
            return Ok(());
        }
        if !self.told_others {
            self.told_others = true;
            let (calls, sent) = (agreement::calls(), reporter.sent());
            let words = self.words.clone();
            notices::tell(Notice::Waits(Wait { what: self.what.clone(), words, calls, sent }));
        }
        if notices::look(|board| board.is_stuck(reporter.rank)) {
            return Err(self.broken("deadlock: ranks wait for each other", DEADLOCK));
        }
        if waited >= reporter.late.deadline {
            let what = lateness::too_late(&self.missing(), &self.call, waited);
            return Err(self.broken(&what, lateness::TOO_LATE));
        }
        if waited >= reporter.late.notice {
            self.say_who_is_late(waited);
        }
        Ok(())
    }

    /// The wait has ended well.
    pub fn over(self) {
        if self.told_others {
            notices::tell(Notice::GoesOn);
        }
        for (late, _, since) in &self.late {
            lateness::say_it_came(*late, &self.call, since.elapsed());
        }
    }

    /// Since when a rank that has not come has been computing, as far as can be seen from here.
    fn computes_since(&self, rank: usize) -> Instant {
        self.group.reporter.seen(rank).map_or(self.start, |(_, at)| at)
    }

    /// One rank says it for all that wait for the same: that of the lowest number.
    fn say_who_is_late(&mut self, waited: Duration) {
        let reporter = &self.group.reporter;
        let missing = self.missing();
        let speaks = self.group.members.iter().find(|member| !missing.contains(member));
        if speaks.is_some_and(|&speaks| speaks != reporter.rank) {
            return;
        }
        for late in missing.into_iter().filter(|&rank| notices::look(|board| board.wait(rank).is_none())) {
            let since = self.computes_since(late);
            let (told, _) = reporter.late.due(since.elapsed());
            match self.late.iter_mut().find(|(rank, ..)| *rank == late) {
                Some((_, before, _)) if *before == told => continue,
                Some((_, before, _)) => *before = told,
                None => self.late.push((late, told, since)),
            }
            lateness::say(told, late, reporter.rank, &self.call, waited, &doing(self.group, late));
        }
    }

    /// The ranks that this one waits for, as far as is known.
    fn missing(&self) -> Vec<usize> {
        let (group, number, members) = match &self.what {
            Awaited::Message { lane: (_, from, _), .. } => return vec![*from],
            Awaited::Collective { group, number, members } => (group, number, members),
        };
        let is_there = |rank: usize| {
            let in_it = |what: &Awaited| matches!(what, Awaited::Collective { group: g, number: n, .. } if (g, n) == (group, number));
            notices::look(|board| board.wait(rank).is_some_and(|wait| in_it(&wait.what)))
        };
        members.iter().copied().filter(|&rank| !is_there(rank)).collect()
    }

    fn broken(&self, what: &str, help: &str) -> CommError {
        broken(self.group, &self.words, self.start, what, help)
    }
}

/// Reads what others have told: an error if one has failed, or if, as `gone` says, one that is waited for has ended.
pub(super) fn look_around(group: &Agreement, call: &Call, gone: impl FnOnce(&Board) -> Option<usize>) -> Result<()> {
    notices::hear();
    let rank = group.reporter.rank;
    let failed = |board: &Board| board.failures().first().map(|(rank, why)| format!("rank {rank} failed: {why}"));
    if let Some(cause) = notices::look(failed) {
        return Err(CommError::Stopped { rank, call: call.to_string(), cause });
    }
    notices::look(gone).map_or(Ok(()), |gone| {
        let what = format!("rank {gone} ended, and never entered {call}");
        Err(broken(group, &group.reporter.in_words(call), Instant::now(), &what, SAME_CALLS))
    })
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

/// What another rank does, as far as is known here.
fn doing(group: &Agreement, rank: usize) -> String {
    let (waits, ended) =
        notices::look(|board| (board.wait(rank).map(|wait| wait.words.clone()), board.has_ended(rank)));
    match (waits, group.reporter.seen(rank)) {
        (Some(words), _) => format!("waits in {words}"),
        (None, _) if ended => "ended".to_string(),
        (None, Some((call, at))) => format!("was last seen in {call}{}", ago(at)),
        (None, None) => "has not been seen".to_string(),
    }
}
