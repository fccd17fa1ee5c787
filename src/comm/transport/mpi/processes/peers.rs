//! A group of ranks, as one of them knows it: its members, and how many collectives this rank has
//! entered in it.

use super::reporter::Reporter;
use crate::comm::meter::lock;
use std::sync::Arc;

/// The members of a group, for a rank that waits for them.
pub(super) struct Peers {
    /// The group's number, the same on all members.
    pub id: u64,
    /// The members' numbers in the world.
    pub members: Arc<[usize]>,
    pub reporter: Arc<Reporter>,
}

impl Peers {
    pub fn new(id: u64, members: Arc<[usize]>, reporter: Arc<Reporter>) -> Peers {
        // The group is listed before its first call: the other ranks then know that this rank has
        // entered none.
        lock(&reporter.calls).insert(id, 0);
        Peers { id, members, reporter }
    }

    /// Collectives of this group that this rank has entered.
    pub fn calls(&self) -> u64 {
        lock(&self.reporter.calls).get(&self.id).copied().unwrap_or_default()
    }

    /// Counts one more collective. Returns its number in the group.
    pub fn next_call(&self) -> u64 {
        let mut calls = lock(&self.reporter.calls);
        let calls = calls.entry(self.id).or_default();
        *calls += 1;
        *calls
    }
}
