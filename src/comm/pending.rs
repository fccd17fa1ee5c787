//! A collective that continues while its rank computes.

use super::transport::{Progress, Transport, vector};
use super::{Call, Element, Result};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

/// A collective in flight, from one of the methods of [`Comm`](super::Comm) that start one.
///
/// [`Pending::test`] and [`Pending::wait`] of any of its ranks make progress, as with an MPI
/// library: call `test` now and then while computing. Threads share the work. Once all ranks have
/// started, every rank that tests or waits does part of what is left, so no rank waits for a rank
/// that computes. A dropped `Pending` still counts for the other ranks; over MPI the drop waits.
pub struct Pending<T> {
    pub(super) in_flight: Box<dyn Progress>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) call: Call,
    /// The call's number in the flight recorder.
    pub(super) number: u64,
    pub(super) start: Instant,
    pub(super) elements: PhantomData<Vec<T>>,
}

/// The interval in which a collective was in flight, as this rank saw it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flight {
    /// When this rank started the collective.
    pub start: Instant,
    /// When the collective was complete: on a simulated link, when the link has carried it; else
    /// when the last part was done. Over MPI, when this rank noticed. This may be well before the
    /// rank asked.
    pub end: Instant,
}

impl<T: Element> Pending<T> {
    /// Whether the collective is complete. Does a share of the work that is left, and never waits.
    ///
    /// # Errors
    /// Those of [`Pending::wait`] as soon as they are known, except the deadline.
    pub fn test(&mut self) -> Result<bool> {
        let start = Instant::now();
        let done = self.in_flight.test();
        self.transport.membership().meter.waited(start.elapsed());
        done
    }

    /// Waits for the result, keeps it, and returns the interval in which the collective was in
    /// flight.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`](super::Comm)).
    pub fn complete(&mut self) -> Result<Flight> {
        let start = Instant::now();
        let membership = self.transport.membership();
        membership.recorder.resume(&self.call, self.number, start);
        let end = self.in_flight.wait();
        let time = start.elapsed();
        membership.recorder.end(start + time, end.is_ok());
        membership.meter.waited(time);
        Ok(Flight { start: self.start, end: end?.max(self.start) })
    }

    /// Waits for the result: the vector that was handed over, with the result in it. Over MPI it
    /// may be a different vector, from an earlier call.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`](super::Comm)).
    pub fn wait(mut self) -> Result<Vec<T>> {
        self.complete()?;
        Ok(vector(self.in_flight.take()))
    }
}
