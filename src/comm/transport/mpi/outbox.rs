//! Messages that are sent without waiting for the other side.

use mpi::point_to_point::Destination;
use mpi::request::{Request, StaticScope};
use std::cell::RefCell;

/// Sends that may not be complete, with their data. If it is dropped before they are, both stay with the process.
#[derive(Default)]
pub(super) struct Outbox(Vec<Sending>);

thread_local! {
    /// What is left of groups that are no more; of the MPI thread.
    static LEFT: RefCell<Outbox> = RefCell::default();
}

/// A group is dropped: its messages that are not complete wait here for their receivers.
pub(super) fn leave_behind(outbox: &mut Outbox) {
    LEFT.with_borrow_mut(|left| {
        left.clear(false);
        left.0.append(&mut outbox.0);
    });
}

/// All messages have been received: waits until the library knows it.
pub(super) fn clear_left() {
    LEFT.with_borrow_mut(|left| left.clear(true));
}

type Sending = (Request<'static, [u8], StaticScope>, *mut [u8]);

impl Outbox {
    /// Starts to send a copy of `data`.
    pub fn send(&mut self, to: &impl Destination, tag: i32, data: &[u8]) {
        let data: *mut [u8] = Box::into_raw(data.into());
        // SAFETY: the box lives until `clear` has seen the request complete, and nobody writes to it.
        let shared: &'static [u8] = unsafe { &*data };
        self.0.push((to.immediate_send_with_tag(StaticScope, shared, tag), data));
    }

    /// Frees the data of sends that are complete; waits for all of them if `all`.
    pub fn clear(&mut self, all: bool) {
        for (request, data) in std::mem::take(&mut self.0) {
            match if all { Ok(request.wait()) } else { request.test() } {
                // SAFETY: the pointer came from `Box::into_raw`, and MPI is done with it.
                Ok(_) => drop(unsafe { Box::from_raw(data) }),
                Err(request) => self.0.push((request, data)),
            }
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        // Dropping a request that is not complete is an error of rsmpi's.
        std::mem::take(&mut self.0).into_iter().for_each(|(request, _)| std::mem::forget(request));
    }
}
