//! How processes tell each other that they wait, go on, have ended or failed, apart from all collectives.
//!
//! On a communicator of its own, by messages that nobody waits for. A rank reads them while it waits, and now and then
//! when it does not, so that they do not pile up at one that never waits.

use super::outbox::Outbox;
use crate::comm::transport::board::{Board, Ending, Notice};
use mpi::point_to_point::{MatchedReceiveVec, Source};
use mpi::topology::{Communicator, SimpleCommunicator};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

const TAG: i32 = 1;

/// How often a rank that does not wait reads.
const NOW_AND_THEN: Duration = Duration::from_secs(1);

/// Of the thread that MPI's calls are made on.
struct Notices {
    comm: SimpleCommunicator,
    outbox: Outbox,
    /// Which of the process's runs this is: who is ahead may already speak of the next one.
    run: u64,
    board: Board,
    early: Vec<(usize, u64, Notice)>,
    read: Instant,
}

thread_local! {
    /// Without a destructor: it is needed while the process ends.
    static NOTICES: RefCell<Option<ManuallyDrop<Notices>>> = const { RefCell::new(None) };
}

/// To be called once MPI is initialised, on its thread, by all processes.
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

/// To be called before MPI is left, on its thread.
pub(super) fn stop() {
    drop(NOTICES.take().map(ManuallyDrop::into_inner));
}

fn with<R>(f: impl FnOnce(&mut Notices) -> R) -> R {
    NOTICES.with_borrow_mut(|notices| f(notices.as_mut().expect("between start and stop")))
}

/// A new run begins.
pub(super) fn begin_run() {
    with(|notices| {
        (notices.run, notices.board) = (notices.run + 1, Board::default());
        for (rank, run, notice) in std::mem::take(&mut notices.early) {
            notices.note(rank, run, notice);
        }
    });
}

/// Tells all other ranks, and notes it here as well.
pub(super) fn tell(notice: Notice) {
    with(|notices| {
        let text = serde_json::to_vec(&(notices.run, &notice)).expect("numbers and text can be written");
        let me = notices.comm.rank();
        for rank in (0..notices.comm.size()).filter(|&rank| rank != me) {
            notices.outbox.send(&notices.comm.process_at_rank(rank), TAG, &text);
        }
        notices.outbox.clear(false);
        notices.board.note(me as usize, notice);
    });
}

/// Reads what others have told.
pub(super) fn hear() {
    with(Notices::hear);
}

/// Reads it if that was long ago.
pub(super) fn hear_now_and_then() {
    with(|notices| {
        if notices.read.elapsed() > NOW_AND_THEN {
            notices.hear();
        }
    });
}

/// What is known of all ranks.
pub(super) fn look<R>(f: impl FnOnce(&Board) -> R) -> R {
    with(|notices| f(&notices.board))
}

/// Says to all others that this rank's part is over, and waits until theirs are: an MPI job ends as one.
pub(super) fn leave(ending: Ending) {
    tell(Notice::Ended(ending));
    wait_for_all(None);
    with(|notices| notices.outbox.clear(true));
}

/// Says to all others that this rank has failed, and waits until they have ended or failed too, for at most 2 s: so each can
/// say what it was doing before the job is aborted.
pub(super) fn fail(why: &str) {
    tell(Notice::Failed(why.to_string()));
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
            // Ignore messages that cannot be parsed: they come from another version of the program.
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
