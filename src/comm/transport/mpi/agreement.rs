//! Do all ranks mean the same collective? Over MPI they ask before each one.
//!
//! An MPI library does not ask: ranks in different calls wait for each other for ever, or take each other's bytes for what
//! they expected. So before a collective every rank tells the others in 168 bytes what it is about to do, by a
//! non-blocking all-gather that is polled. If they differ, all ranks know it, and end in the same
//! error. It takes 2 to 3 µs a collective between two processes on two cores (1 KiB all-reduce, `lab01 --bench`);
//! `--no-check` leaves it out. What happens while they do not all come is in `waiting.rs`.

use super::notices;
use super::reporter::Reporter;
use super::started;
use super::waiting::{Waiting, look_around};
use crate::comm::transport::board::{Awaited, Counts};
use crate::comm::transport::run::different;
use crate::comm::{Call, CommError, Result};
use mpi::collective::CommunicatorCollectives;
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// What a rank is about to do: kind, type and reduction; elements; root; the number of the collective in its group; the
/// call's label. These are compared. Then the same in words, for an error.
type Header = [u8; COMPARED + WORDS];

const COMPARED: usize = 5 * size_of::<u64>();
const WORDS: usize = 128;

/// What all members are asked, and when they have answered.
pub(super) struct Question {
    pub call: Call,
    /// The call in words, with its number in this rank's flight recorder.
    pub words: String,
    pub number: u64,
    mine: *mut Header,
    all: *mut [u8],
    /// None once the answers are in.
    request: Option<Request<'static, [u8], StaticScope>>,
    /// What they come to, if not all mean the same.
    disagreement: Option<CommError>,
}

/// How one group agrees on its calls, on this rank.
pub(super) struct Agreement {
    /// Nothing else is sent here, so that no collective can be taken for a question.
    comm: ManuallyDrop<SimpleCommunicator>,
    /// The same on all members.
    pub id: u64,
    /// The members' numbers in the world.
    pub members: Arc<[usize]>,
    pub reporter: Arc<Reporter>,
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
    /// Collectives so far, by group; of the MPI thread.
    static CALLS: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// A new run begins.
pub(super) fn begin_run() {
    CALLS.take();
}

/// The collectives that this rank has come to.
pub(super) fn calls() -> Counts {
    CALLS.with_borrow(|calls| calls.iter().map(|(&group, &calls)| (group, calls)).collect())
}

impl Agreement {
    /// All members must come.
    pub fn new(comm: &SimpleCommunicator, id: u64, members: Arc<[usize]>, reporter: Arc<Reporter>) -> Agreement {
        // A group in which a rank has made no call yet is told of all the same: the others then know that it has come to none.
        CALLS.with_borrow_mut(|calls| calls.insert(id, 0));
        Agreement { comm: ManuallyDrop::new(comm.duplicate()), id, members, reporter }
    }

    /// The number that all members give to the group that begins with their rank `first`, in their latest split.
    pub fn id_of_part(&self, first: usize) -> u64 {
        let split = CALLS.with_borrow(|calls| calls.get(&self.id).copied().unwrap_or_default());
        [self.id, split, first as u64].iter().fold(HASH, |hash, x| mix(hash, &x.to_le_bytes()))
    }

    /// Tells the others of `call`, and does not wait for their answers.
    pub fn ask(&self, call: &Call) -> Question {
        notices::hear_now_and_then();
        let number = CALLS.with_borrow_mut(|calls| {
            let calls = calls.entry(self.id).or_default();
            *calls += 1;
            *calls
        });
        let what = call.kind as u64 | (call.dtype as u64) << 8 | call.op.map_or(0, |op| op as u64 + 1) << 16;
        let numbers =
            [what, call.len as u64, call.peer.map_or(0, |peer| peer.rank as u64 + 1), number, tell_apart(call)];
        let words = self.reporter.in_words(call);
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
        Question { call: *call, words, number, mine, all, request: Some(request), disagreement: None }
    }

    /// Waits until all members are in the call that they were told of; an error on all of them if they are not, or cannot come.
    pub fn agree(&self, question: &mut Question) -> Result<()> {
        let (call, number, words) = (question.call, question.number, question.words.clone());
        self.wait(&call, number, words, || self.is_agreed(question))
    }

    /// Waits until `agreed`, for the members to come to this call. Meanwhile the library gets what others may be waiting for.
    pub fn wait(
        &self,
        call: &Call,
        number: u64,
        words: String,
        mut agreed: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        if agreed()? {
            return Ok(());
        }
        let (group, members) = (self.id, self.members.to_vec());
        let mut waiting = Waiting::start(self, *call, words, Awaited::Collective { group, number, members });
        while !agreed()? {
            look_around(self, call, |board| board.who_will_not_come(group, number, &self.members))?;
            waiting.look()?;
            started::post_agreed();
            std::thread::yield_now();
        }
        waiting.over();
        Ok(())
    }

    /// Whether all have answered, and mean the same call.
    pub fn is_agreed(&self, question: &mut Question) -> Result<bool> {
        let Some(request) = question.request.take() else {
            return question.disagreement.clone().map_or(Ok(true), Err);
        };
        if let Err(request) = request.test() {
            question.request = Some(request);
            return Ok(false);
        }
        // SAFETY: both came from `Box::into_raw`, and MPI is done with them.
        let (mine, all) = unsafe { (Box::from_raw(question.mine), Box::from_raw(question.all)) };
        if all.chunks_exact(mine.len()).all(|header| header[..COMPARED] == mine[..COMPARED]) {
            self.reporter.see(&self.members, &question.call);
            return Ok(true);
        }
        let error = question.disagreement.insert(self.disagreement(&all));
        Err(error.clone())
    }

    /// All members have the same answers, and so the same error.
    fn disagreement(&self, all: &[u8]) -> CommError {
        const LABEL: usize = COMPARED - size_of::<u64>();
        let headers: Vec<&[u8]> = all.chunks_exact(COMPARED + WORDS).collect();
        let words = |header: &&[u8]| String::from_utf8_lossy(&header[COMPARED..]).trim_end().to_string();
        let other = headers.iter().find(|header| header[..COMPARED] != headers[0][..COMPARED]).unwrap_or(&headers[0]);
        let mut text = format!("the ranks are in different calls: {} and {}", words(&headers[0]), words(other));
        for (rank, header) in self.members.iter().zip(&headers) {
            text += &format!("\n  rank {rank}  waits in {}", words(header));
        }
        let alike = headers.iter().all(|header| header[..LABEL] == headers[0][..LABEL]);
        CommError::Broken(format!("{text}\nhelp: {}", different(alike)))
    }

    /// Frees the communicator: on the MPI thread only.
    pub fn free(&mut self) {
        // SAFETY: called once, when the group's transport is dropped.
        unsafe { ManuallyDrop::drop(&mut self.comm) };
    }
}

/// A number for a message's label; 0 if it has none.
pub(super) fn label(call: &Call) -> u64 {
    call.label.map_or(0, |label| mix(HASH, label.as_bytes()))
}

/// A number for a call's label, or for its place in the source.
fn tell_apart(call: &Call) -> u64 {
    match call.label {
        Some(_) => label(call),
        None => {
            let place = mix(!HASH, call.at.file().as_bytes());
            mix(mix(place, &call.at.line().to_le_bytes()), &call.at.column().to_le_bytes())
        }
    }
}

/// FNV-1a, by which all processes come to the same number.
const HASH: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
