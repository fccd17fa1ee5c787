//! Collectives that are started and not posted to the library: ranks do not know yet whether all
//! make them.

use super::peers::Peers;
use crate::comm::Result;
use crate::comm::call::Call;
use crate::comm::meter::lock;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

/// A collective that may not be posted yet.
pub(super) trait Unposted: Send {
    fn group(&self) -> u64;
    /// The question to the other ranks whether they make this call too, if they are asked.
    fn asked(&self) -> Option<Asked>;
    /// Whether all ranks are known to make this call. An error if they do not.
    fn is_agreed(&mut self) -> Result<bool>;
    /// Hands the collective to the library.
    fn post(&mut self);
}

/// A call that this rank has asked the others about.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub call: Call,
    /// The collective's number in its group.
    pub in_group: u64,
    /// The call's number in this rank's flight recorder.
    pub number: u64,
}

thread_local! {
    /// The collectives of all groups that are started and not posted, in that order; of the MPI
    /// thread.
    static UNPOSTED: RefCell<Vec<Arc<Mutex<dyn Unposted>>>> = const { RefCell::new(Vec::new()) };
}

/// Adds a collective that has just been started.
pub(super) fn push(started: Arc<Mutex<dyn Unposted>>) {
    UNPOSTED.with_borrow_mut(|unposted| unposted.push(started));
}

/// The group's earliest collective that is not posted.
pub(super) fn first_of(group: &Peers) -> Option<Arc<Mutex<dyn Unposted>>> {
    let of_group = |one: &&Arc<Mutex<dyn Unposted>>| lock(one).group() == group.id;
    UNPOSTED.with_borrow(|unposted| unposted.iter().find(of_group).cloned())
}

/// Posts all collectives that ranks agree on, in each group in the order of the starts.
pub(super) fn post_agreed() {
    UNPOSTED.with_borrow_mut(|unposted| {
        let mut held_up = Vec::new();
        unposted.retain(|one| {
            let mut one = lock(one);
            // An error is kept for the rank that waits for this collective.
            if held_up.contains(&one.group()) || !one.is_agreed().unwrap_or(false) {
                held_up.push(one.group());
                return true;
            }
            one.post();
            false
        });
    });
}
