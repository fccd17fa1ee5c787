//! A rank that waits for others checks whether they can still come.
//!
//! The wait is an error as soon as this rank knows that others have failed or ended, or that all
//! ranks wait for each other. So a rank that waits for more than 100 ms reports it to the others. A
//! late rank is only a notice at first, and an error at the deadline.

use super::notices;
use super::peers::Peers;
use super::unposted::post_agreed;
use crate::comm::transport::lateness::{self, Lateness};
use crate::comm::transport::mpi::board::{Awaited, Board, Notice, Wait};
use crate::comm::{Call, CallInfo, CommError, RankState, Report, Result};
use std::time::{Duration, Instant};

/// A rank does not report a wait shorter than this.
const QUIET: Duration = Duration::from_millis(100);
/// A deadlock does not go away. So a rank that finds one waits this long for the reports of the
/// other ranks, to show them too.
const REPORTS: Duration = Duration::from_secs(2);

/// A wait of this rank.
pub(super) struct WaitingRank<'a> {
    peers: &'a Peers,
    call: Call,
    /// The call with its number, for errors.
    info: CallInfo,
    what: Awaited,
    start: Instant,
    told_others: bool,
    stuck: Option<Instant>,
    /// Ranks with a notice that they are late, and since when each has been computing.
    late: Vec<(usize, Lateness, Instant)>,
}

/// Waits until `ready`. Returns an error if `look` does, if the wait can never end, or at the
/// deadline. `describe` returns the call and what it waits for. Meanwhile the library gets the
/// collectives that other ranks may be waiting for.
pub(super) fn wait(
    peers: &Peers,
    call: &Call,
    describe: impl FnOnce() -> (CallInfo, Awaited),
    mut ready: impl FnMut() -> Result<bool>,
    look: impl Fn() -> Result<()>,
) -> Result<()> {
    if ready()? {
        return Ok(());
    }
    let (info, what) = describe();
    let start = Instant::now();
    let mut waiting = WaitingRank {
        peers,
        call: *call,
        info,
        what,
        start,
        told_others: false,
        stuck: None,
        late: Vec::new(),
    };
    while !ready()? {
        look()?;
        waiting.look()?;
        post_agreed();
        std::thread::yield_now();
    }
    if waiting.told_others {
        notices::tell(Notice::GoesOn);
    }
    for (late, _, since) in &waiting.late {
        lateness::say_it_came(*late, call, since.elapsed());
    }
    Ok(())
}

impl WaitingRank<'_> {
    /// Returns an error if the wait can never end, or has reached the deadline.
    fn look(&mut self) -> Result<()> {
        let reporter = &self.peers.reporter;
        let waited = self.start.elapsed();
        if waited < QUIET.min(reporter.options.notice() / 2) {
            return Ok(());
        }
        if !self.told_others {
            self.told_others = true;
            notices::tell(Notice::Waits(Wait {
                what: self.what.clone(),
                call: self.info.clone(),
                calls: reporter.calls(),
                sent: reporter.sent(),
            }));
        }
        if notices::look(|board| board.is_stuck(reporter.rank)) && self.reports_are_in(waited) {
            return Err(CommError::Deadlock { all: false, report: self.report() });
        }
        if waited >= reporter.options.deadline {
            return Err(CommError::DeadlinePassed {
                missing: self.missing(),
                call: Box::new(self.info.clone()),
                waited,
                report: self.report(),
            });
        }
        if waited >= reporter.options.notice() {
            self.say_who_is_late(waited);
        }
        Ok(())
    }

    fn report(&self) -> Box<Report> {
        report(self.peers, &self.info, self.start)
    }

    /// Whether every rank has reported what it does, or has had the time to.
    fn reports_are_in(&mut self, waited: Duration) -> bool {
        let stuck = *self.stuck.get_or_insert_with(Instant::now);
        let reporter = &self.peers.reporter;
        let silent = |board: &Board| {
            (0..reporter.ranks).any(|rank| board.wait(rank).is_none() && !board.is_over(rank))
        };
        stuck.elapsed() >= REPORTS || waited >= reporter.options.deadline || !notices::look(silent)
    }

    /// Prints which ranks are late. Several ranks may wait for the same ranks: the lowest of them
    /// prints.
    fn say_who_is_late(&mut self, waited: Duration) {
        let reporter = &self.peers.reporter;
        let missing = self.missing();
        let speaks = self.peers.members.iter().find(|member| !missing.contains(member));
        if speaks.is_some_and(|&speaks| speaks != reporter.rank) {
            return;
        }
        for late in missing
            .into_iter()
            .filter(|&rank| notices::look(|board| board.wait(rank).is_none()))
        {
            // This rank knows no better time than that of the last call they shared.
            let since = reporter.seen(late).map_or(self.start, |(_, at)| at);
            let (due, _) = lateness::due(&reporter.options, since.elapsed());
            match self.late.iter_mut().find(|(rank, ..)| *rank == late) {
                Some((_, before, _)) if *before == due => continue,
                Some((_, before, _)) => *before = due,
                None => self.late.push((late, due, since)),
            }
            lateness::say(due, late, reporter.rank, &self.call, waited, &state(self.peers, late));
        }
    }

    /// The ranks that this one waits for, as far as it knows.
    fn missing(&self) -> Vec<usize> {
        let same = |rank: usize| {
            notices::look(|board| board.wait(rank).is_some_and(|wait| wait.what == self.what))
        };
        match &self.what {
            Awaited::Message { lane: (_, from, _), .. } => vec![*from],
            Awaited::Collective { members, .. } => {
                members.iter().copied().filter(|&rank| !same(rank)).collect()
            }
        }
    }
}

/// Reads what other ranks have reported. Returns an error if a rank has failed, or if `gone` finds
/// that an awaited rank has ended.
pub(super) fn look_around(
    peers: &Peers,
    call: &Call,
    gone: impl FnOnce(&Board) -> Option<usize>,
) -> Result<()> {
    let (failure, gone) = notices::hear(|board| {
        let failure = board.failures().first().map(|(_, error)| (*error).clone());
        (failure, gone(board))
    });
    if let Some(cause) = failure {
        return Err(peers.reporter.stopped(call, cause));
    }
    let Some(gone) = gone else {
        return Ok(());
    };
    let info = peers.reporter.info(call);
    Err(CommError::RankEnded {
        rank: gone,
        report: report(peers, &info, Instant::now()),
        call: Box::new(info),
    })
}

/// What this rank knows of every rank of the world. It has itself been waiting in `call` since
/// `start`.
fn report(peers: &Peers, call: &CallInfo, start: Instant) -> Box<Report> {
    let mut ranks = Vec::new();
    for rank in 0..peers.reporter.ranks {
        let state = if rank == peers.reporter.rank {
            RankState::Waits { call: call.clone(), time: start.elapsed() }
        } else {
            state(peers, rank)
        };
        ranks.push((rank, state));
    }
    Box::new(Report { ranks, flight_file: None })
}

/// What a different rank is doing, as far as this one knows.
fn state(peers: &Peers, rank: usize) -> RankState {
    let (waits, ended) = notices::look(|board| {
        let waits = board.wait(rank).map(|wait| wait.call.clone());
        (waits, board.has_ended(rank))
    });
    match (waits, peers.reporter.seen(rank)) {
        (Some(call), _) => RankState::Waits { call, time: Duration::ZERO },
        (None, _) if ended => RankState::Ended { after: None },
        (None, Some((call, at))) => {
            RankState::LastSeen { call: call.info(None), time: at.elapsed() }
        }
        (None, None) => RankState::NotSeen,
    }
}
