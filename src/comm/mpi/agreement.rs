//! Do all ranks mean the same collective? Over MPI they ask before each one.
//!
//! An MPI library does not ask: ranks in different calls wait for each other for ever, or take each other's bytes for what
//! they expected. So before a collective every rank tells the others in 160 bytes what it is about to do, by a
//! non-blocking all-gather that is polled. If they differ, all ranks know it, and end in the same
//! error. It takes 0.5 to 2.5 µs a collective between two processes on two cores (1 KiB all-reduce, `lab01 --bench`);
//! `--no-check` leaves it out.
//!
//! A rank whose part is over tells all others how many collectives it has made in each of its groups ([`leave`]). Who waits
//! for it in a later one, or for a message, knows then that it will not come. And it stays until all others are
//! done, so that an MPI job ends as one.

use crate::comm::job::{DIFFERENT_CALLS, SAME_CALLS};
use crate::comm::{Call, CommError, Result};
use mpi::collective::CommunicatorCollectives;
use mpi::point_to_point::{Destination, MatchedReceiveVec, Source};
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// What a rank is about to do: kind, type and reduction; elements; root; the number of the collective in its group. These
/// are compared. Then the same in words, for an error.
type Header = [u8; COMPARED + WORDS];

const COMPARED: usize = 4 * size_of::<u64>();
const WORDS: usize = 128;

/// What all members are asked, and when they have answered.
pub(super) struct Question {
    call: Call,
    number: u64,
    mine: *mut Header,
    all: *mut [u8],
    /// None once the answers are in.
    request: Option<Request<'static, [u8], StaticScope>>,
}

/// One group's agreement, on this rank.
pub(super) struct Group {
    /// Nothing else is sent here, so that no collective can be taken for a question.
    comm: ManuallyDrop<SimpleCommunicator>,
    /// The same on all members.
    id: u64,
    /// The members' numbers in the world.
    pub members: Vec<usize>,
}

/// Of this thread, which is the one that MPI's calls are made on.
#[derive(Default)]
struct Run {
    /// Collectives so far, by group.
    calls: HashMap<u64, u64>,
    /// What ranks that have ended said of theirs, by their number in the world.
    ended: HashMap<usize, HashMap<u64, u64>>,
}

impl Drop for Question {
    /// Without an answer the run has failed: MPI keeps the request, and what it writes to.
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            std::mem::forget(request);
        }
    }
}

thread_local! {
    static RUN: RefCell<Run> = RefCell::default();
}

impl Group {
    /// All members must come.
    pub fn new(comm: &SimpleCommunicator, id: u64, members: Vec<usize>) -> Group {
        RUN.with_borrow_mut(|run| run.calls.insert(id, 0));
        Group { comm: ManuallyDrop::new(comm.duplicate()), id, members }
    }

    /// The number that all members give to the group that begins with their rank `first`, in their latest split.
    pub fn id_of_part(&self, first: usize) -> u64 {
        let split = RUN.with_borrow(|run| run.calls.get(&self.id).copied().unwrap_or_default());
        [self.id, split, first as u64].iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, x| {
            x.to_le_bytes().iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        })
    }

    /// Tells the others of `call`, and does not wait for their answers.
    pub fn ask(&self, call: &Call) -> Question {
        let number = RUN.with_borrow_mut(|run| {
            let calls = run.calls.entry(self.id).or_default();
            *calls += 1;
            *calls
        });
        let what = call.kind as u64 | (call.dtype as u64) << 8 | call.op.map_or(0, |op| op as u64 + 1) << 16;
        let numbers = [what, call.len as u64, call.peer.map_or(0, |peer| peer as u64 + 1), number];
        let words = format!("{call}, its call {number}");
        let mut header = [b' '; COMPARED + WORDS];
        header[..COMPARED].copy_from_slice(bytemuck::cast_slice(&numbers));
        for (byte, word) in header[COMPARED..].iter_mut().zip(words.bytes()) {
            *byte = word;
        }
        let all = vec![0; header.len() * self.members.len()].into_boxed_slice();
        let (mine, all) = (Box::into_raw(Box::new(header)), Box::into_raw(all));
        // SAFETY: both boxes live until the request is complete, and nobody looks at them before: `poll` frees them then, and
        // if it never is, they stay.
        let (from, to): (&'static Header, &'static mut [u8]) = unsafe { (&*mine, &mut *all) };
        let request = self.comm.immediate_all_gather_into(StaticScope, &from[..], to);
        Question { call: *call, number, mine, all, request: Some(request) }
    }

    /// Waits until all members are in `call`; an error on all of them if they are not, or cannot come.
    pub fn agree(&self, call: &Call) -> Result<()> {
        let mut question = self.ask(call);
        while !self.poll(&mut question)? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether all have answered, and mean the same call.
    pub fn poll(&self, question: &mut Question) -> Result<bool> {
        let Some(request) = question.request.take() else { return Ok(true) };
        if let Err(request) = request.test() {
            question.request = Some(request);
            hear();
            return match self.who_will_not_come(question.number) {
                Some(gone) => Err(will_not_come(gone, &question.call)),
                None => Ok(false),
            };
        }
        // SAFETY: both came from `Box::into_raw`, and MPI is done with them.
        let (mine, all) = unsafe { (Box::from_raw(question.mine), Box::from_raw(question.all)) };
        if all.chunks_exact(mine.len()).all(|header| header[..COMPARED] == mine[..COMPARED]) {
            return Ok(true);
        }
        Err(self.disagreement(&all))
    }

    /// All members have the same answers, and so the same error.
    fn disagreement(&self, all: &[u8]) -> CommError {
        let words = |header: &[u8]| String::from_utf8_lossy(&header[COMPARED..]).trim_end().to_string();
        let calls: Vec<String> = all.chunks_exact(COMPARED + WORDS).map(words).collect();
        let other = calls.iter().find(|call| **call != calls[0]).unwrap_or(&calls[0]);
        let mut text = format!("the ranks are in different calls: {} and {other}", calls[0]);
        for (rank, call) in self.members.iter().zip(&calls) {
            text += &format!("\n  rank {rank}  waits in {call}");
        }
        CommError::Broken(format!("{text}\nhelp: {DIFFERENT_CALLS}"))
    }

    /// A member that has ended before the group's collective `number`.
    fn who_will_not_come(&self, number: u64) -> Option<usize> {
        RUN.with_borrow(|run| {
            let calls =
                |rank: &usize| run.ended.get(rank).map(|calls| calls.get(&self.id).copied().unwrap_or_default());
            self.members.iter().copied().find(|rank| calls(rank).is_some_and(|calls| calls < number))
        })
    }

    /// Waits until `is_here` says that a message from member `from` has come; an error if that has ended without sending it.
    pub fn await_message(&self, call: &Call, from: usize, is_here: impl Fn() -> bool) -> Result<()> {
        let from = self.members[from];
        while !is_here() {
            hear();
            if RUN.with_borrow(|run| run.ended.contains_key(&from)) {
                // What it sent before it ended may still be on its way, by another communicator.
                std::thread::sleep(Duration::from_millis(200));
                return if is_here() { Ok(()) } else { Err(will_not_come(from, call)) };
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Frees the communicator: on the MPI thread only.
    pub fn free(&mut self) {
        // SAFETY: called once, when the group's transport is dropped.
        unsafe { ManuallyDrop::drop(&mut self.comm) };
    }
}

fn will_not_come(gone: usize, call: &Call) -> CommError {
    CommError::Broken(format!("rank {gone} ended, and never entered {call}\nhelp: {SAME_CALLS}"))
}

const TAG: i32 = 1;

thread_local! {
    /// A communicator of all ranks on which they say that they have ended.
    static NOTICES: RefCell<Option<SimpleCommunicator>> = const { RefCell::new(None) };
}

/// To be called once MPI is initialised, on its thread, by all processes.
pub(super) fn start(world: &SimpleCommunicator) {
    NOTICES.set(Some(world.duplicate()));
}

/// To be called before MPI is left, on its thread.
pub(super) fn stop() {
    NOTICES.set(None);
}

/// Takes note of ranks that say that they have ended.
fn hear() {
    NOTICES.with_borrow(|notices| {
        let Some(notices) = notices else { return };
        for rank in 0..notices.size() as usize {
            // What a rank says after that it says of its next run.
            if RUN.with_borrow(|run| run.ended.contains_key(&rank)) {
                continue;
            }
            if let Some(message) = notices.process_at_rank(rank as i32).immediate_matched_probe_with_tag(TAG) {
                let (calls, _) = message.matched_receive_vec::<u64>();
                let calls = calls.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
                RUN.with_borrow_mut(|run| run.ended.insert(rank, calls));
            }
        }
    });
}

/// Says to all other ranks that this one's part is over, and waits until theirs are.
pub(super) fn leave() {
    let calls: Vec<u64> = RUN.with_borrow(|run| run.calls.iter().flat_map(|(&id, &calls)| [id, calls]).collect());
    NOTICES.with_borrow(|notices| {
        let Some(notices) = notices else { return };
        let others = (0..notices.size()).filter(|&rank| rank != notices.rank());
        mpi::request::scope(|scope| {
            let sends: Vec<_> = others
                .clone()
                .map(|rank| notices.process_at_rank(rank).immediate_send_with_tag(scope, &calls[..], TAG))
                .collect();
            while others.clone().any(|rank| RUN.with_borrow(|run| !run.ended.contains_key(&(rank as usize)))) {
                hear();
                std::thread::sleep(Duration::from_micros(100));
            }
            sends.into_iter().for_each(Request::wait_without_status);
        });
    });
    RUN.take();
}
