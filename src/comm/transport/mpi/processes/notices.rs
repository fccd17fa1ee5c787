//! Notices: processes report to each other that they wait, continue, have ended or have failed.
//!
//! Notices are messages on their own communicator, and no rank waits for one. A rank reads them
//! while it waits. It also reads them now and then while it does not, so that they do not pile up.

use super::outbox::Outbox;
use crate::comm::CommError;
use crate::comm::transport::mpi::board::{Board, Ending, Notice};
use mpi::point_to_point::{MatchedReceiveVec, Source};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

const TAG: i32 = 1;

/// How often a rank that does not wait reads notices.
const NOW_AND_THEN: Duration = Duration::from_secs(1);

/// The notices of this process; of the MPI thread.
struct Notices {
    comm: SimpleCommunicator,
    outbox: Outbox,
    /// The number of the process's run. A rank that is ahead may already send notices of the next
    /// run.
    run: u64,
    board: Board,
    early: Vec<(usize, u64, Notice)>,
    read: Instant,
}

thread_local! {
    /// Without a destructor, because it is needed while the process ends.
    static NOTICES: RefCell<Option<ManuallyDrop<Notices>>> = const { RefCell::new(None) };
}

/// All processes call this on the MPI thread once MPI is initialised.
pub(super) fn start(world: &SimpleCommunicator) {
    NOTICES.set(Some(ManuallyDrop::new(Notices {
        comm: world.duplicate(),
        outbox: Outbox::default(),
        run: 0,
        board: Board::default(),
        early: Vec::new(),
        read: Instant::now(),
    })));
}

/// The MPI thread calls this before it leaves MPI.
pub(super) fn stop() {
    drop(NOTICES.take().map(ManuallyDrop::into_inner));
}

fn with<R>(f: impl FnOnce(&mut Notices) -> R) -> R {
    NOTICES.with_borrow_mut(|notices| f(notices.as_mut().expect("between start and stop")))
}

/// Begins a new run.
pub(super) fn begin_run() {
    with(|notices| {
        notices.run += 1;
        notices.board = Board::default();
        for (rank, run, notice) in std::mem::take(&mut notices.early) {
            notices.note(rank, run, notice);
        }
    });
}

/// Sends a notice to all other ranks, and notes it here as well.
pub(super) fn tell(notice: Notice) {
    with(|notices| {
        let text =
            serde_json::to_vec(&(notices.run, &notice)).expect("numbers and text can be written");
        let me = notices.comm.rank();
        for rank in (0..notices.comm.size()).filter(|&rank| rank != me) {
            notices.outbox.send(&notices.comm.process_at_rank(rank), TAG, &text);
        }
        notices.outbox.clear(false);
        notices.board.note(me as usize, notice);
    });
}

/// Reads the notices that have arrived if the last time was long ago.
pub(super) fn hear_now_and_then() {
    with(|notices| {
        if notices.read.elapsed() > NOW_AND_THEN {
            notices.hear();
        }
    });
}

/// Reads the notices that have arrived, and evaluates `f` on the latest notices of all ranks.
pub(super) fn hear<R>(f: impl FnOnce(&Board) -> R) -> R {
    with(|notices| {
        notices.hear();
        f(&notices.board)
    })
}

/// Evaluates `f` on the latest notices of all ranks.
pub(super) fn look<R>(f: impl FnOnce(&Board) -> R) -> R {
    with(|notices| f(&notices.board))
}

/// Reports that this rank's part is over, and waits until all other parts are: an MPI job ends as
/// one.
pub(super) fn leave(ending: Ending) {
    tell(Notice::Ended(ending));
    wait_for_all(None);
    with(|notices| notices.outbox.clear(true));
}

/// Reports that this rank has failed, and waits at most 2 s until all other ranks have ended or
/// failed too. So each rank can print what it was doing before the job is aborted.
pub(super) fn fail(why: CommError) {
    tell(Notice::Failed(why));
    wait_for_all(Some(Duration::from_secs(2)));
}

fn wait_for_all(most: Option<Duration>) {
    let start = Instant::now();
    let all = |notices: &mut Notices| {
        notices.hear();
        (0..notices.comm.size() as usize).all(|rank| notices.board.is_over(rank))
    };
    while !with(all) && most.is_none_or(|most| start.elapsed() < most) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

impl Notices {
    fn hear(&mut self) {
        self.read = Instant::now();
        while let Some(message) = self.comm.any_process().immediate_matched_probe_with_tag(TAG) {
            let (text, status) = message.matched_receive_vec::<u8>();
            // Ignore messages that cannot be parsed: they come from a different version of the
            // program.
            if let Ok((run, notice)) = serde_json::from_slice(&text) {
                self.note(status.source_rank() as usize, run, notice);
            }
        }
    }

    fn note(&mut self, rank: usize, run: u64, notice: Notice) {
        match run.cmp(&self.run) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => self.board.note(rank, notice),
            std::cmp::Ordering::Greater => self.early.push((rank, run, notice)),
        }
    }
}
