//! A group of ranks, as one of them knows it: its members, and how many collectives this rank has
//! entered in it.

use super::reporter::Reporter;
use crate::comm::transport::mpi::board::Counts;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// The members of a group, for a rank that waits for them.
pub(super) struct Peers {
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
    CALLS.with_borrow(|calls| calls.iter().map(|(&group, &calls)| (group, calls)).collect())
}

impl Peers {
    pub fn new(id: u64, members: Arc<[usize]>, reporter: Arc<Reporter>) -> Peers {
        // The group is listed before its first call: the other ranks then know that this rank has
        // entered none.
        CALLS.with_borrow_mut(|calls| calls.insert(id, 0));
        Peers { id, members, reporter }
    }

    /// Collectives of this group that this rank has entered.
    pub fn calls(&self) -> u64 {
        CALLS.with_borrow(|calls| calls.get(&self.id).copied().unwrap_or_default())
    }

    /// Counts one more collective. Returns its number in the group.
    pub fn next_call(&self) -> u64 {
        CALLS.with_borrow_mut(|calls| {
            let calls = calls.entry(self.id).or_default();
            *calls += 1;
            *calls
        })
    }
}
