//! Non-blocking collectives: requests of the MPI library that continue while the rank computes.
//!
//! The library trusts that all ranks make the same call: given different lengths, it writes past
//! the end of a vector. So a rank that starts a collective only asks the other ranks
//! (`agreement.rs`). Once all have answered alike, its next call of any kind posts the collective
//! to the library. The question and the collective are two non-blocking requests, one after the
//! other. The library gets the collectives of a group in the order in which they were started,
//! which is the same on all ranks. While a rank waits for one collective, it posts the others that
//! are agreed on: a different rank may be waiting for them.

use super::agreement::{Agreement, Question};
use super::posted::Posted;
use super::unposted::{Asked, Unposted, first_of, post_agreed, push};
use super::waiting::look_around;
use super::{Mpi, narrow, put_columns};
use crate::comm::Result;
use crate::comm::call::{Call, CallKind};
use crate::comm::element::Element;
use crate::comm::meter::lock;
use crate::comm::transport::{Buffer, Progress, vector};
use crate::comm::uneven::Counts;
use mpi::datatype::Equivalence;
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Posts this group's collectives, until one is `posted` or none is left. Waits for the ranks to
/// agree on them.
pub(super) fn post_until(group: &Agreement, posted: impl Fn() -> bool) -> Result<()> {
    while !posted()
        && let Some(one) = first_of(&group.peers)
    {
        await_agreement(group, &one)?;
        post_agreed();
    }
    Ok(())
}

fn await_agreement(group: &Agreement, one: &Mutex<impl Unposted + ?Sized>) -> Result<()> {
    let asked = lock(one).asked();
    match asked {
        Some(asked) => group.wait(asked, || lock(one).is_agreed()),
        None => Ok(()),
    }
}

/// The input and the output of a collective.
type Vectors<T> = (Vec<<T as Element>::Wide>, Vec<<T as Element>::Wide>);

/// A collective of the MPI library. The library has the vectors from [`Unposted::post`] until the
/// collective is complete.
struct MpiCollective<T: Element> {
    mpi: Arc<Mpi>,
    call: Call,
    /// The parts of an all-to-all in which they are unequal.
    counts: Option<Counts>,
    /// Whether all ranks make this call.
    question: Option<Question>,
    vectors: Option<Vectors<T>>,
    posted: Option<Posted<[T::Wide], Vectors<T>>>,
    /// When this rank saw that the collective is complete.
    complete: Option<Instant>,
}

impl<T: Element> MpiCollective<T> {
    fn is_posted(&self) -> bool {
        self.posted.is_some() || self.complete.is_some()
    }

    /// Lets the library work. Returns when the collective was complete, if it is.
    fn progress(&mut self) -> Option<Instant> {
        if self.posted.as_mut().is_some_and(Posted::test) {
            self.vectors = self.posted.take().map(Posted::take);
            self.complete = Some(Instant::now());
        }
        self.complete
    }
}

impl<T: Element<Wide: Equivalence>> Unposted for MpiCollective<T> {
    fn group(&self) -> u64 {
        self.mpi.group.as_ref().map_or(0, |group| group.peers.id)
    }

    fn asked(&self) -> Option<Asked> {
        self.question.as_ref().map(|question| question.asked)
    }

    fn is_agreed(&mut self) -> Result<bool> {
        match (&self.mpi.group, &mut self.question) {
            (Some(group), Some(question)) => group.is_agreed(question),
            _ => Ok(true),
        }
    }

    fn post(&mut self) {
        let post = |(input, output): &'static mut Vectors<T>| match &self.counts {
            Some(counts) => self.mpi.post_exchange(counts, self.call.dtype.size(), input, output),
            None => self.mpi.post(&self.call, input, output),
        };
        self.posted = self.vectors.take().map(|vectors| Posted::new(vectors, post));
    }
}

/// A non-blocking collective of this rank. An all-gather and an all-to-all move bytes.
pub(super) struct Started<T: Element<Wide: Equivalence>> {
    mpi: Arc<Mpi>,
    call: Call,
    work: Arc<Mutex<MpiCollective<T>>>,
    /// The vector that was handed over, unless it is the work's input itself.
    data: Option<Box<dyn Buffer>>,
}

impl<T: Element<Wide: Equivalence>> Started<T> {
    /// Starts a reduction.
    pub fn reduce(mpi: Arc<Mpi>, call: &Call, data: Box<dyn Buffer>) -> Box<dyn Progress> {
        // f32, f64 and integers go to MPI directly; f16 and bf16 are widened first.
        let (input, data) = match (data as Box<dyn Any>).downcast::<Vec<T::Wide>>() {
            Ok(data) => (*data, None),
            Err(data) => {
                let data: Vec<T> = vector(data);
                let mut wide = mpi.take_spare::<T::Wide>(data.len());
                for (wide, &x) in wide.iter_mut().zip(&data) {
                    *wide = x.widen();
                }
                (wide, Some(Box::new(data) as Box<dyn Buffer>))
            }
        };
        let vectors = (mpi.in_chunks(call, input), mpi.take_spare(call.len));
        Started::<T>::begin(mpi, call, None, vectors, data)
    }

    fn begin(
        mpi: Arc<Mpi>,
        call: &Call,
        counts: Option<Counts>,
        vectors: Vectors<T>,
        data: Option<Box<dyn Buffer>>,
    ) -> Box<dyn Progress> {
        let work = Arc::new(Mutex::new(MpiCollective::<T> {
            mpi: mpi.clone(),
            call: *call,
            counts,
            question: mpi.group.as_ref().map(|group| group.ask(call)),
            vectors: Some(vectors),
            posted: None,
            complete: None,
        }));
        push(work.clone());
        post_agreed();
        Box::new(Started { mpi, call: *call, work, data })
    }

    /// Waits until the library has completed the collective. An error if the ranks do not agree on
    /// it, or a rank has failed.
    fn finish(&self) -> Result<Instant> {
        if let Some(group) = &self.mpi.group {
            await_agreement(group, &*self.work)?;
            // Earlier collectives of the group come first.
            post_until(group, || lock(&self.work).is_posted())?;
        }
        loop {
            if let Some(complete) = lock(&self.work).progress() {
                return Ok(complete);
            }
            if let Some(group) = &self.mpi.group {
                look_around(&group.peers, &self.call, |_| None)?;
            }
            std::thread::yield_now();
            post_agreed();
        }
    }
}

impl Started<u8> {
    /// Starts an all-gather.
    pub fn gather(mpi: Arc<Mpi>, call: &Call, mut data: Box<dyn Buffer>) -> Box<dyn Progress> {
        let part = call.len * call.dtype.size();
        let mut input = mpi.take_spare(part);
        input.copy_from_slice(&data.bytes_mut()[mpi.membership.rank * part..][..part]);
        let output = mpi.take_spare::<u8>(mpi.size() * part);
        Started::<u8>::begin(mpi, call, None, (input, output), Some(data))
    }

    /// Starts an all-to-all with unequal parts.
    pub fn exchange(
        mpi: Arc<Mpi>,
        call: &Call,
        counts: Counts,
        mut data: Box<dyn Buffer>,
    ) -> Box<dyn Progress> {
        let sent = counts.room(mpi.membership.rank).start * call.dtype.size();
        let (input, room) = data.bytes_mut().split_at(sent);
        let vectors = (input.to_vec(), vec![0; room.len()]);
        Started::<u8>::begin(mpi, call, Some(counts), vectors, Some(data))
    }
}

impl<T: Element<Wide: Equivalence>> Progress for Started<T> {
    fn test(&mut self) -> Result<bool> {
        self.mpi.check_thread(&self.call)?;
        post_agreed();
        let mut work = lock(&self.work);
        if work.is_agreed()? {
            return Ok(work.progress().is_some());
        }
        if let (Some(asked), Some(group)) = (work.asked(), &self.mpi.group) {
            group.look_for_members(asked)?;
        }
        Ok(false)
    }

    fn wait(&mut self) -> Result<Instant> {
        self.mpi.check_thread(&self.call)?;
        self.finish()
    }

    fn take(mut self: Box<Self>) -> Box<dyn Any> {
        let mut work = lock(&self.work);
        let MpiCollective { vectors, counts, .. } = &mut *work;
        let (input, output) = vectors.as_mut().expect("taken only when complete");
        let has_result = self.call.peer.is_none_or(|root| root.rank == self.mpi.membership.rank);
        self.mpi.divide::<T>(&self.call, output);
        let size = self.call.dtype.size();
        match (self.data.take(), counts) {
            (Some(mut data), Some(counts)) => {
                let room = counts.room(self.mpi.membership.rank);
                // Given away: later calls have other lengths, and no use for these vectors.
                *input = Vec::new();
                let brought = std::mem::take(output);
                data.bytes_mut()[room.start * size..]
                    .copy_from_slice(bytemuck::cast_slice(&brought));
                data.keep(room);
                data
            }
            (Some(mut data), None) if self.call.kind == CallKind::StartAllGather => {
                let part = self.call.len * size;
                let mut brought = bytemuck::cast_slice(output);
                for chunk in self.mpi.chunks(part) {
                    let (columns, rest) = brought.split_at(self.mpi.size() * chunk.len());
                    put_columns(data.bytes_mut(), part, &chunk, columns);
                    brought = rest;
                }
                data
            }
            (Some(mut data), None) => {
                if has_result {
                    data.keep(0..self.call.len);
                    narrow::<T>(output, data.bytes_mut());
                }
                data
            }
            (None, _) => Box::new(std::mem::take(if has_result { output } else { input })),
        }
    }
}

impl<T: Element<Wide: Equivalence>> Drop for Started<T> {
    fn drop(&mut self) {
        // After a panic the job ends, and the other ranks may never come. Off the MPI thread,
        // waiting is impossible. If waiting ends in an error, the rank that fails the run prints
        // why.
        if std::thread::panicking()
            || self.mpi.check_thread(&self.call).is_err()
            || self.finish().is_err()
        {
            return;
        }
        if let Some((input, output)) = lock(&self.work).vectors.take() {
            self.mpi.keep_spare(input);
            self.mpi.keep_spare(output);
        }
    }
}
