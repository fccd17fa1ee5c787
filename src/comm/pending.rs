//! A collective that goes on while its rank computes.

use super::transport::{Transport, UnderWay};
use super::{Call, Element, Result};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// A collective under way, from one of the methods of [`Comm`](super::Comm) that start one.
///
/// It goes on in [`Pending::test`] and [`Pending::wait`] of any of its ranks, as an MPI library's progress does: test now and
/// then while computing. Threads share the work: whoever comes once all ranks have started does what is left of it, so
/// nobody waits for a rank that computes. Dropped, it still counts for the others; over MPI that waits.
pub struct Pending<T> {
    under_way: Box<dyn UnderWay>,
    transport: Arc<dyn Transport>,
    call: Call,
    /// The call's number in the flight recorder.
    number: u64,
    start: Instant,
    elements: PhantomData<Vec<T>>,
}

/// From when to when a collective was under way, as this rank saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight {
    /// When this rank started it.
    pub start: Instant,
    /// When it was complete: on the simulated link if there is one, else when the last part was done; over MPI when this
    /// rank noticed. May lie well before the rank asked.
    pub end: Instant,
}

impl<T: Element> Pending<T> {
    pub(super) fn new(
        under_way: Box<dyn UnderWay>,
        transport: Arc<dyn Transport>,
        call: Call,
        number: u64,
        start: Instant,
    ) -> Pending<T> {
        Pending { under_way, transport, call, number, start, elements: PhantomData }
    }

    /// Whether the result is there. Does a share of the work that is left, and never waits.
    /// Errors as [`Pending::wait`]'s, as far as they are known by now.
    pub fn test(&mut self) -> Result<bool> {
        let start = Instant::now();
        let done = self.under_way.test();
        self.transport.meter().waited(start.elapsed());
        done
    }

    /// Waits for the result and keeps it: when was it complete? Errors are those of [`Comm::all_reduce`](super::Comm::all_reduce).
    pub fn complete(&mut self) -> Result<Flight> {
        let start = Instant::now();
        self.transport.recorder().resume(&self.call, self.number, start);
        let end = self.under_way.wait();
        let time = start.elapsed();
        self.transport.recorder().end(start + time, end.is_ok());
        self.transport.meter().waited(time);
        Ok(Flight { start: self.start, end: end?.max(self.start) })
    }

    /// Waits for the result: the vector that was handed in, with the result in it. (Over MPI it may be another one, from an
    /// earlier call.) Errors are those of [`Comm::all_reduce`](super::Comm::all_reduce).
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.complete()?;
        Ok(vector(self.under_way.take()))
    }
}

/// The vector that was handed over; a call's type is its vector's.
pub(super) fn vector<T: Element>(handed_over: Box<dyn Any>) -> Vec<T> {
    *handed_over.downcast().expect("a call's type is its vector's")
}
