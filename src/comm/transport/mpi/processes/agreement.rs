//! Do all ranks make the same collective call? Over MPI they ask each other before each one.
//!
//! An MPI library does not check: ranks in different calls wait for each other forever, or accept
//! each other's bytes as what they expected. So before a collective every rank describes its call
//! to the others in 168 bytes, by a non-blocking all-gather that it polls. If the calls differ, all
//! ranks notice, and end with the same error. The check takes 2 to 3 µs per collective between two
//! processes on two cores (1 KiB all-reduce, `lab01 --bench`), and `--no-check` turns it off.
//! `waiting.rs` handles the time until all ranks have come.

use super::notices;
use super::peers::Peers;
use super::posted::Posted;
use super::reporter::Reporter;
use super::unposted::Asked;
use super::waiting::{self, look_around};
use crate::comm::transport::mpi::board::Awaited;
use crate::comm::transport::mpi::header::{
    ARGUMENTS, COMPARED, HASH, Header, decode, encode, hash,
};
use crate::comm::{Call, CommError, RankState, Report, Result};
use mpi::collective::CommunicatorCollectives;
use mpi::ffi;
use mpi::raw::{AsRaw, FromRaw};
use mpi::request::{Request, StaticScope};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::sync::Arc;
use std::time::Duration;

/// This rank's header, and the headers of all ranks.
type Headers = (Header, Vec<u8>);

/// The question to all members whether they make this call.
pub(super) struct Question {
    pub asked: Asked,
    /// This rank's header and the headers of all ranks, until the answers have arrived.
    posted: Option<Posted<[u8], Headers>>,
    /// The error if ranks make different calls.
    disagreement: Option<CommError>,
}

/// How one group agrees on its calls, on this rank.
pub(super) struct Agreement {
    /// Only questions use this communicator, so that no collective can be mistaken for one.
    comm: Arc<ManuallyDrop<SimpleCommunicator>>,
    pub peers: Peers,
}

thread_local! {
    /// The world's communicator for questions. It is made once, when MPI starts: MPI makes
    /// communicators in calls that wait for all processes, and a process that is late to a run
    /// would make the others wait in one, without a word or a deadline.
    static OF_WORLD: RefCell<Option<Arc<ManuallyDrop<SimpleCommunicator>>>> = const { RefCell::new(None) };
}

/// All processes call this on the MPI thread once MPI is initialised.
pub(super) fn start(world: &SimpleCommunicator) {
    OF_WORLD.set(Some(shared(world.duplicate())));
}

impl Agreement {
    /// How all ranks of a run agree.
    pub fn of_world(members: Arc<[usize]>, reporter: Arc<Reporter>) -> Agreement {
        let comm = OF_WORLD.with_borrow(|comm| comm.clone()).expect("made when MPI started");
        Agreement { comm, peers: Peers::new(0, members, reporter) }
    }

    /// How the `members` of a new group agree, whose communicator is `comm`. `call` is the split of
    /// this group that made it. All of them call this together, and wait for each other at most
    /// until the deadline.
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
        // SAFETY: the library has made this communicator only for this rank.
        let comm = unsafe { SimpleCommunicator::from_raw(duplicate) };
        let peers = Peers::new(id, members, self.peers.reporter.clone());
        Ok(Agreement { comm: shared(comm), peers })
    }

    /// Returns when all members have come to this place in `call`. A call of the library that
    /// cannot be interrupted may follow.
    pub fn come_together(&self, call: &Call) -> Result<()> {
        let mut barrier = Posted::new((), |()| vec![self.comm.immediate_barrier()]);
        self.wait_within(call, || Ok(barrier.test()))
    }

    /// Waits until `ready`, in a call that this rank has asked about.
    fn wait_within(&self, call: &Call, ready: impl FnMut() -> Result<bool>) -> Result<()> {
        let asked = Asked {
            call: *call,
            in_group: self.peers.calls(),
            number: self.peers.reporter.recorder.number(),
        };
        self.wait(asked, ready)
    }

    /// The number of the new group whose first member is rank `first` of this one, in the latest
    /// split. All members compute the same.
    pub fn id_of_part(&self, first: usize) -> u64 {
        let split = self.peers.calls();
        [self.peers.id, split, first as u64]
            .iter()
            .fold(HASH, |id, x| hash(id, &x.to_le_bytes()))
    }

    /// Describes `call` to the other ranks, without waiting for their answers.
    pub fn ask(&self, call: &Call) -> Question {
        notices::hear_now_and_then();
        let asked = Asked {
            call: *call,
            in_group: self.peers.next_call(),
            number: self.peers.reporter.recorder.number(),
        };
        let header = encode(call, asked.in_group, asked.number);
        let all = vec![0; header.len() * self.peers.members.len()];
        let posted = Posted::new((header, all), |(mine, all)| {
            vec![self.comm.immediate_all_gather_into(StaticScope, &mine[..], &mut all[..])]
        });
        Question { asked, posted: Some(posted), disagreement: None }
    }

    /// Waits until all members have answered. Returns an error if they make different calls, or
    /// cannot come.
    pub fn agree(&self, question: &mut Question) -> Result<()> {
        self.wait(question.asked, || self.is_agreed(question))
    }

    /// Waits until `agreed`: until all members make this call.
    pub fn wait(&self, asked: Asked, agreed: impl FnMut() -> Result<bool>) -> Result<()> {
        let peers = &self.peers;
        let describe = || {
            let awaited = Awaited::Collective {
                group: peers.id,
                number: asked.in_group,
                members: peers.members.to_vec(),
            };
            (asked.call.info(Some(asked.number)), awaited)
        };
        let look = || self.look_for_members(asked);
        waiting::wait(peers, &asked.call, describe, agreed, look)
    }

    /// Returns an error if the run has failed, or if a member has ended that will not make this
    /// call.
    pub fn look_for_members(&self, asked: Asked) -> Result<()> {
        let peers = &self.peers;
        look_around(peers, &asked.call, |board| {
            board.who_will_not_come(peers.id, asked.in_group, &peers.members)
        })
    }

    /// Whether all members have answered, and make the same call.
    pub fn is_agreed(&self, question: &mut Question) -> Result<bool> {
        if question.posted.as_mut().is_some_and(|posted| !posted.test()) {
            return Ok(false);
        }
        if let Some((mine, all)) = question.posted.take().map(Posted::take) {
            if all
                .chunks_exact(mine.len())
                .all(|header| header[..COMPARED] == mine[..COMPARED])
            {
                self.peers.reporter.see(&self.peers.members, &question.asked.call);
            } else {
                question.disagreement = Some(self.disagreement(&all));
            }
        }
        match &question.disagreement {
            Some(error) => Err(error.clone()),
            None => Ok(true),
        }
    }

    /// The error of a disagreement. All members have the same answers, and so the same error.
    fn disagreement(&self, all: &[u8]) -> CommError {
        let members = &self.peers.members;
        let headers: Vec<&[u8]> = all.chunks_exact(size_of::<Header>()).collect();
        let call = |header: &[u8]| decode(header, members);
        let first = headers[0];
        let other = headers
            .iter()
            .find(|header| header[..COMPARED] != first[..COMPARED])
            .unwrap_or(&first);
        let waits = |header: &&[u8]| RankState::Waits { call: call(header), time: Duration::ZERO };
        CommError::CallsDiffer {
            calls: Box::new([call(first), call(other)]),
            alike: headers.iter().all(|header| header[..ARGUMENTS] == first[..ARGUMENTS]),
            report: Box::new(Report {
                ranks: members.iter().copied().zip(headers.iter().map(waits)).collect(),
                flight_file: None,
            }),
        }
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

/// Starts to duplicate a communicator. The library writes the copy to `duplicate` before the
/// request is complete.
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
