//! Messages that are sent without waiting for the receiver.

use super::posted::Posted;
use crate::comm::transport::message::Message;
use mpi::point_to_point::Destination;
use mpi::request::StaticScope;
use std::cell::RefCell;

/// Sends that may not be complete, with their data.
#[derive(Default)]
pub(super) struct Outbox(Vec<Posted<[u8], Message>>);

thread_local! {
    /// The sends of all groups, also of groups that no longer exist; of the MPI thread.
    static SENDS: RefCell<Outbox> = RefCell::default();
}

pub(super) fn with(f: impl FnOnce(&mut Outbox)) {
    SENDS.with_borrow_mut(f);
}

impl Outbox {
    /// Starts to send a copy of `data`.
    pub fn send(&mut self, to: &impl Destination, tag: i32, data: &[u8]) {
        let post = |data: &'static mut Message| {
            vec![to.immediate_send_with_tag(StaticScope, &data[..], tag)]
        };
        let mut copy = Message::with_capacity(data.len());
        copy.fill(data);
        self.0.push(Posted::new(copy, post));
    }

    /// Frees the data of sends that are complete. Waits for all of them if `all`.
    pub fn clear(&mut self, all: bool) {
        for mut sending in std::mem::take(&mut self.0) {
            if all {
                sending.wait();
            }
            if sending.test() {
                drop(sending.take())
            } else {
                self.0.push(sending)
            }
        }
    }
}
