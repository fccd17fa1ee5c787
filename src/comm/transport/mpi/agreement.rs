//! Do all ranks make the same collective call? Over MPI they ask each other before each one.
//!
//! An MPI library does not check: ranks in different calls wait for each other forever, or accept each other's bytes as what
//! they expected. So before a collective every rank describes its call to the others in 168 bytes, by a non-blocking
//! all-gather that it polls. If the calls differ, all ranks notice, and end with the same error. The check takes 2 to 3 µs
//! per collective between two processes on two cores (1 KiB all-reduce, `lab01 --bench`), and `--no-check` turns it off.
//! `waiting.rs` handles the time until all ranks have come.

use super::notices;
use super::posted::Posted;
use super::reporter::Reporter;
use super::waiting::{self, look_around};
use crate::comm::transport::board::{Awaited, Counts};
use crate::comm::transport::run::different;
use crate::comm::{Call, CommError, Result};
use mpi::collective::CommunicatorCollectives;
use mpi::ffi;
use mpi::raw::{AsRaw, FromRaw};
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::collections::HashMap;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;

/// The description of a call. Ranks compare five numbers: kind, type and reduction; elements; root; the number of the
/// collective in its group; the call's label. Then follows the call in words, for an error.
type Header = [u8; COMPARED + WORDS];

/// This rank's header, and the headers of all ranks.
type Headers = (Header, Vec<u8>);

const COMPARED: usize = 5 * size_of::<u64>();
const WORDS: usize = 128;

/// The question to all members whether they make this call.
pub(super) struct Question {
    pub call: Call,
    /// The call in words, with its number in this rank's flight recorder.
    pub words: String,
    pub number: u64,
    /// This rank's header and the headers of all ranks, until the answers have arrived.
    posted: Option<Posted<[u8], Headers>>,
    /// The error if ranks make different calls.
    disagreement: Option<CommError>,
}

/// How one group agrees on its calls, on this rank.
pub(super) struct Agreement {
    /// Only questions use this communicator, so that no collective can be mistaken for one.
    comm: Arc<ManuallyDrop<SimpleCommunicator>>,
    /// The group's number, the same on all members.
    pub id: u64,
    /// The members' numbers in the world.
    pub members: Arc<[usize]>,
    pub reporter: Arc<Reporter>,
}

thread_local! {
    /// Collectives so far, by group; of the MPI thread.
    static CALLS: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// Forgets the collectives of an earlier run.
pub(super) fn begin_run() {
    CALLS.take();
}

/// How many collectives this rank has entered, by group.
pub(super) fn calls() -> Counts {
    CALLS.with_borrow(|calls| {
        calls
            .iter()
            .map(|(&group, &calls)| (group, calls))
            .collect()
    })
}

thread_local! {
    /// The world's communicator for questions. It is made once, when MPI starts: MPI makes communicators in calls that wait for
    /// all processes, and a process that is late to a run would make the others wait in one, without a word or a deadline.
    static OF_WORLD: RefCell<Option<Arc<ManuallyDrop<SimpleCommunicator>>>> = const { RefCell::new(None) };
}

/// All processes call this on the MPI thread once MPI is initialised.
pub(super) fn start(world: &SimpleCommunicator) {
    OF_WORLD.set(Some(shared(world.duplicate())));
}

impl Agreement {
    /// How all ranks of a run agree.
    pub fn of_world(members: Arc<[usize]>, reporter: Arc<Reporter>) -> Agreement {
        let comm = OF_WORLD
            .with_borrow(|comm| comm.clone())
            .expect("made when MPI started");
        Agreement::on(comm, 0, members, reporter)
    }

    fn on(
        comm: Arc<ManuallyDrop<SimpleCommunicator>>,
        id: u64,
        members: Arc<[usize]>,
        reporter: Arc<Reporter>,
    ) -> Agreement {
        // The group is listed before its first call: the other ranks then know that this rank has entered none.
        CALLS.with_borrow_mut(|calls| calls.insert(id, 0));
        Agreement {
            comm,
            id,
            members,
            reporter,
        }
    }

    /// How the `members` of a new group agree, whose communicator is `comm`. `call` is the split of this group that made it. All
    /// of them call this together, and wait for each other at most until the deadline.
    pub fn of_part(
        &self,
        call: &Call,
        comm: &SimpleCommunicator,
        id: u64,
        members: Arc<[usize]>,
    ) -> Result<Agreement> {
        let mut duplicate =
            Posted::new(None, |duplicate| vec![start_to_duplicate(comm, duplicate)]);
        self.wait_within(call, || Ok(duplicate.test()))?;
        let duplicate = duplicate.take().expect("the library has made it");
        // SAFETY: the library has made this communicator for this rank alone.
        let comm = unsafe { SimpleCommunicator::from_raw(duplicate) };
        Ok(Agreement::on(
            shared(comm),
            id,
            members,
            self.reporter.clone(),
        ))
    }

    /// Returns when all members have come to this place in `call`. A call of the library that cannot be interrupted may follow.
    pub fn come_together(&self, call: &Call) -> Result<()> {
        let mut barrier = Posted::new((), |()| vec![self.comm.immediate_barrier()]);
        self.wait_within(call, || Ok(barrier.test()))
    }

    /// Waits until `ready`, in a call that this rank has asked about.
    fn wait_within(&self, call: &Call, ready: impl FnMut() -> Result<bool>) -> Result<()> {
        let number = CALLS.with_borrow(|calls| calls.get(&self.id).copied().unwrap_or_default());
        self.wait(call, number, self.reporter.in_words(call), ready)
    }

    /// The number of the new group whose first member is rank `first` of this one, in the latest split. All members compute
    /// the same.
    pub fn id_of_part(&self, first: usize) -> u64 {
        let split = CALLS.with_borrow(|calls| calls.get(&self.id).copied().unwrap_or_default());
        [self.id, split, first as u64]
            .iter()
            .fold(HASH, |hash, x| mix(hash, &x.to_le_bytes()))
    }

    /// Describes `call` to the other ranks, without waiting for their answers.
    pub fn ask(&self, call: &Call) -> Question {
        notices::hear_now_and_then();
        let number = CALLS.with_borrow_mut(|calls| {
            let calls = calls.entry(self.id).or_default();
            *calls += 1;
            *calls
        });
        let what = call.kind as u64
            | (call.dtype as u64) << 8
            | call.op.map_or(0, |op| op as u64 + 1) << 16;
        let numbers = [
            what,
            call.len as u64,
            call.peer.map_or(0, |peer| peer.rank as u64 + 1),
            number,
            tell_apart(call),
        ];
        let words = self.reporter.in_words(call);
        let mut header = [b' '; COMPARED + WORDS];
        header[..COMPARED].copy_from_slice(bytemuck::cast_slice(&numbers));
        for (byte, word) in header[COMPARED..].iter_mut().zip(words.bytes()) {
            *byte = word;
        }
        let all = vec![0; header.len() * self.members.len()];
        let posted = Posted::new((header, all), |(mine, all)| {
            vec![
                self.comm
                    .immediate_all_gather_into(StaticScope, &mine[..], &mut all[..]),
            ]
        });
        Question {
            call: *call,
            words,
            number,
            posted: Some(posted),
            disagreement: None,
        }
    }

    /// Waits until all members have answered. Returns an error if they make different calls, or cannot come.
    pub fn agree(&self, question: &mut Question) -> Result<()> {
        let call = question.call;
        let number = question.number;
        let words = question.words.clone();
        self.wait(&call, number, words, || self.is_agreed(question))
    }

    /// Waits until `agreed`: until all members make this call.
    pub fn wait(
        &self,
        call: &Call,
        number: u64,
        words: String,
        agreed: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let what = || Awaited::Collective {
            group: self.id,
            number,
            members: self.members.to_vec(),
        };
        let look = || {
            look_around(self, call, |board| {
                board.who_will_not_come(self.id, number, &self.members)
            })
        };
        waiting::wait(self, call, || (words, what()), agreed, look)
    }

    /// Whether all members have answered, and make the same call.
    pub fn is_agreed(&self, question: &mut Question) -> Result<bool> {
        if question
            .posted
            .as_mut()
            .is_some_and(|posted| !posted.test())
        {
            return Ok(false);
        }
        if let Some((mine, all)) = question.posted.take().map(Posted::take) {
            if all
                .chunks_exact(mine.len())
                .all(|header| header[..COMPARED] == mine[..COMPARED])
            {
                self.reporter.see(&self.members, &question.call);
            } else {
                question.disagreement = Some(self.disagreement(&all));
            }
        }
        question.disagreement.clone().map_or(Ok(true), Err)
    }

    /// The error of a disagreement. All members have the same answers, and so the same error.
    fn disagreement(&self, all: &[u8]) -> CommError {
        const LABEL: usize = COMPARED - size_of::<u64>();
        let headers: Vec<&[u8]> = all.chunks_exact(COMPARED + WORDS).collect();
        let words = |header: &&[u8]| {
            String::from_utf8_lossy(&header[COMPARED..])
                .trim_end()
                .to_string()
        };
        let other = headers
            .iter()
            .find(|header| header[..COMPARED] != headers[0][..COMPARED])
            .unwrap_or(&headers[0]);
        let mut text = format!(
            "the ranks are in different calls: {} and {}",
            words(&headers[0]),
            words(other)
        );
        for (rank, header) in self.members.iter().zip(&headers) {
            text += &format!("\n  rank {rank}  waits in {}", words(header));
        }
        let alike = headers
            .iter()
            .all(|header| header[..LABEL] == headers[0][..LABEL]);
        CommError::Broken(format!("{text}\nhelp: {}", different(alike)))
    }

    /// Frees the communicator. Only the MPI thread may call this.
    pub fn free(&mut self) {
        // The world's communicator has one more owner, and stays for the next run.
        if let Some(comm) = Arc::get_mut(&mut self.comm) {
            // SAFETY: called once, when the group's transport is dropped.
            unsafe { ManuallyDrop::drop(comm) };
        }
    }
}

/// A communicator that several groups may have.
#[allow(
    clippy::arc_with_non_send_sync,
    reason = "only the MPI thread uses it, but a group may be dropped elsewhere (see `Mpi`)"
)]
fn shared(comm: SimpleCommunicator) -> Arc<ManuallyDrop<SimpleCommunicator>> {
    Arc::new(ManuallyDrop::new(comm))
}

/// Starts to duplicate a communicator. The library writes the copy to `duplicate` before the request is complete.
fn start_to_duplicate(
    comm: &SimpleCommunicator,
    duplicate: &'static mut Option<ffi::MPI_Comm>,
) -> Request<'static, (), StaticScope> {
    let copy = duplicate.insert(comm.as_raw());
    let mut request = MaybeUninit::uninit();
    // SAFETY: the communicator is alive, and the copy lives until the request is complete.
    unsafe {
        ffi::MPI_Comm_idup(comm.as_raw(), copy, request.as_mut_ptr());
        Request::from_raw(request.assume_init(), &(), StaticScope)
    }
}

/// A number for a call's label, or 0 if it has none.
pub(super) fn label(call: &Call) -> u64 {
    call.label.map_or(0, |label| mix(HASH, label.as_bytes()))
}

/// A number for a call's label. A call without a label gets one for its place in the source.
fn tell_apart(call: &Call) -> u64 {
    match call.label {
        Some(_) => label(call),
        None => {
            let place = mix(!HASH, call.at.file().as_bytes());
            mix(
                mix(place, &call.at.line().to_le_bytes()),
                &call.at.column().to_le_bytes(),
            )
        }
    }
}

/// The start of FNV-1a, a hash that is the same in all processes.
const HASH: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
