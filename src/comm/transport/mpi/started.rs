//! Non-blocking collectives: requests of the MPI library that go on while the rank computes.
//!
//! The library trusts that all ranks mean the same: given different lengths, it writes past the end of a vector. So a rank that
//! starts a collective only asks the others (`agreement.rs`). It hands the collective to the library once all have answered
//! alike, in whatever call it makes next: the question and the collective are two non-blocking requests, one after the other.
//! The library gets the collectives of a group in the order in which they were started, which is the same on all ranks. While
//! a rank waits for one, it hands over the others that are agreed on: another rank may be waiting for them.

use super::agreement::{Agreement, Question};
use super::waiting::look_around;
use super::{Mpi, columns, in_mpi, put_columns};
use crate::comm::Result;
use crate::comm::call::{Call, Kind};
use crate::comm::element::{Element, Reduce};
use crate::comm::pending::vector;
use crate::comm::transport::{Buffer, Transport, UnderWay};
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::datatype::Equivalence;
use mpi::request::{Request, StaticScope};
use std::any::Any;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

thread_local! {
    /// What has been started and not been handed to the library, in that order, over all groups; of the MPI thread.
    static UNPOSTED: RefCell<Vec<Arc<Mutex<dyn Unposted>>>> = const { RefCell::new(Vec::new()) };
}

/// A collective that the library may not have yet.
trait Unposted: Send {
    fn group(&self) -> u64;
    fn question(&self) -> Option<&Question>;
    /// Whether all ranks are known to mean this collective; an error if they do not.
    fn is_agreed(&mut self) -> Result<bool>;
    /// Hands it to the library.
    fn post(&mut self);
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands to the library what all are known to agree on, in each group in the order of the starts.
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

/// Hands to the library all that was started in this group: waits until it is agreed on.
pub(super) fn post_all(group: &Agreement) -> Result<()> {
    let first = || {
        let of_group = |one: &&Arc<Mutex<dyn Unposted>>| lock(one).group() == group.id;
        UNPOSTED.with_borrow(|unposted| unposted.iter().find(of_group).cloned())
    };
    while let Some(one) = first() {
        await_agreement(group, &one)?;
        post_agreed();
    }
    Ok(())
}

fn await_agreement(group: &Agreement, one: &Mutex<impl Unposted + ?Sized>) -> Result<()> {
    let asked = lock(one).question().map(|question| (question.call, question.number, question.words.clone()));
    asked.map_or(Ok(()), |(call, number, words)| group.wait(&call, number, words, || lock(one).is_agreed()))
}

/// The vectors of a collective, and what the library does with them: one request for each chunk.
struct Work<T: Element> {
    mpi: Arc<Mpi>,
    call: Call,
    /// What is sent, and nobody may change meanwhile.
    input: ManuallyDrop<Vec<T::Wide>>,
    /// Where the library writes, and nobody may look meanwhile.
    output: ManuallyDrop<Vec<T::Wide>>,
    requests: Vec<Request<'static, [T::Wide], StaticScope>>,
    /// Whether all ranks mean this call.
    question: Option<Question>,
    posted: bool,
    /// When this rank has seen the last request complete.
    complete: Option<Instant>,
}

// SAFETY: as for `Mpi`: it is used on the MPI thread alone, and dropped elsewhere it frees nothing.
unsafe impl<T: Element> Send for Work<T> {}

impl<T: Element> Work<T>
where
    T::Wide: Equivalence,
{
    /// Lets the library work. Returns when it was done, if it is.
    fn progress(&mut self) -> Option<Instant> {
        for request in std::mem::take(&mut self.requests) {
            if let Err(request) = request.test() {
                self.requests.push(request);
            }
        }
        if self.posted && self.requests.is_empty() {
            self.complete.get_or_insert_with(Instant::now);
        }
        self.complete
    }

    /// The part of `input` and that of `output` which the request for elements `from` and `to` gets.
    fn slices(
        &mut self,
        from: std::ops::Range<usize>,
        to: std::ops::Range<usize>,
    ) -> (&'static [T::Wide], &'static mut [T::Wide]) {
        let (from, to): (*const [T::Wide], *mut [T::Wide]) = (&self.input[from], &mut self.output[to]);
        // SAFETY: both vectors' memory stays where it is, and is neither read, written nor freed, until no request is
        // left: `Started::take` looks at them after the last one is complete, and `Drop` waits, or frees nothing.
        unsafe { (&*from, &mut *to) }
    }
}

impl<T: Element> Unposted for Work<T>
where
    T::Wide: Equivalence,
{
    fn group(&self) -> u64 {
        self.mpi.group.as_ref().map_or(0, |group| group.id)
    }

    fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    fn is_agreed(&mut self) -> Result<bool> {
        match (&self.mpi.group, &mut self.question) {
            (Some(group), Some(question)) => group.is_agreed(question),
            _ => Ok(true),
        }
    }

    fn post(&mut self) {
        self.posted = true;
        let (mpi, call) = (self.mpi.clone(), self.call);
        if call.kind == Kind::StartAllGather {
            let ranks = mpi.size();
            for chunk in mpi.chunks(self.input.len()) {
                let (from, to) = self.slices(chunk.clone(), ranks * chunk.start..ranks * chunk.end);
                self.requests.push(mpi.comm.immediate_all_gather_into(StaticScope, from, to));
            }
            return;
        }
        let op = in_mpi(call.op.expect("a reducing call names its reduction"));
        let scatters = call.kind == Kind::StartReduceScatter;
        let parts = if scatters { mpi.size() } else { 1 };
        for chunk in mpi.chunks(call.len) {
            let (from, to) = self.slices(parts * chunk.start..parts * chunk.end, chunk);
            self.requests.push(match call.peer {
                Some(root) if root.rank == mpi.rank() => {
                    mpi.root(root.rank).immediate_reduce_into_root(StaticScope, from, to, op)
                }
                Some(root) => mpi.root(root.rank).immediate_reduce_into(StaticScope, from, op),
                None if scatters => mpi.comm.immediate_reduce_scatter_block_into(StaticScope, from, to, op),
                None => mpi.comm.immediate_all_reduce_into(StaticScope, from, to, op),
            });
        }
    }
}

impl<T: Element> Drop for Work<T> {
    fn drop(&mut self) {
        // Dropping a request that is not complete is an error of rsmpi's. It stays with the process, and its vectors too.
        std::mem::forget(std::mem::take(&mut self.requests));
    }
}

/// A non-blocking collective of this rank. An all-gather moves bytes.
pub(super) struct Started<T: Element>
where
    T::Wide: Equivalence,
{
    mpi: Arc<Mpi>,
    call: Call,
    work: Arc<Mutex<Work<T>>>,
    /// What was handed over, unless it is the work's input itself.
    narrow: Option<Vec<T>>,
    /// What was handed over to an all-gather.
    gathered: Option<Box<dyn Buffer>>,
}

impl<T: Element> Started<T>
where
    T::Wide: Equivalence,
{
    /// Starts a reduction.
    pub fn reduce(mpi: Arc<Mpi>, call: &Call, data: Box<dyn Buffer>) -> Box<dyn UnderWay> {
        // Where arithmetic is done in the type itself, the vector is sent as it is.
        let (mut input, narrow) = match data.into_any().downcast::<Vec<T::Wide>>() {
            Ok(data) => (*data, None),
            Err(data) => {
                let data: Vec<T> = vector(data);
                let mut wide = mpi.take_spare(data.len());
                wide.iter_mut().zip(&data).for_each(|(wide, &x): (&mut T::Wide, _)| *wide = x.widen());
                (wide, Some(data))
            }
        };
        if call.kind == Kind::StartReduceScatter && call.len > mpi.most {
            // What a request takes must lie in one piece.
            let in_order: Vec<T::Wide> =
                mpi.chunks(call.len).flat_map(|chunk| columns(&input, call.len, &chunk)).collect();
            input.copy_from_slice(&in_order);
        }
        let output = mpi.take_spare(call.len);
        Started::begin(mpi, call, input, output, narrow, None)
    }

    fn begin(
        mpi: Arc<Mpi>,
        call: &Call,
        input: Vec<T::Wide>,
        output: Vec<T::Wide>,
        narrow: Option<Vec<T>>,
        gathered: Option<Box<dyn Buffer>>,
    ) -> Box<dyn UnderWay> {
        let question = mpi.group.as_ref().map(|group| group.ask(call));
        let asked = question.is_some();
        let mut work = Work {
            mpi: mpi.clone(),
            call: *call,
            input: ManuallyDrop::new(input),
            output: ManuallyDrop::new(output),
            requests: Vec::new(),
            question,
            posted: false,
            complete: None,
        };
        if !asked {
            work.post();
        }
        let work = Arc::new(Mutex::new(work));
        if asked {
            UNPOSTED.with_borrow_mut(|unposted| unposted.push(work.clone()));
            post_agreed();
        }
        Box::new(Started { mpi, call: *call, work, narrow, gathered })
    }

    /// Waits until the library has done it; an error if the ranks do not agree on it, or one has failed.
    fn finish(&self) -> Result<Instant> {
        if let Some(group) = &self.mpi.group {
            await_agreement(group, &*self.work)?;
        }
        loop {
            post_agreed();
            if let Some(complete) = lock(&self.work).progress() {
                return Ok(complete);
            }
            self.mpi.group.as_ref().map_or(Ok(()), |group| look_around(group, &self.call, |_| None))?;
            std::thread::yield_now();
        }
    }
}

impl Started<u8> {
    /// Starts an all-gather.
    pub fn gather(mpi: Arc<Mpi>, call: &Call, mut data: Box<dyn Buffer>) -> Box<dyn UnderWay> {
        let part = call.len * call.dtype.size();
        let mut input = mpi.take_spare(part);
        input.copy_from_slice(&data.bytes_mut()[mpi.rank() * part..][..part]);
        let output = mpi.take_spare::<u8>(mpi.size() * part);
        Started::<u8>::begin(mpi, call, input, output, None, Some(data))
    }
}

impl<T: Element> UnderWay for Started<T>
where
    T::Wide: Equivalence,
{
    fn test(&mut self) -> Result<bool> {
        self.mpi.check_thread(&self.call)?;
        post_agreed();
        let mut work = lock(&self.work);
        if work.is_agreed()? {
            return Ok(work.progress().is_some());
        }
        let asked = work.question().map(|question| question.number).zip(self.mpi.group.as_ref());
        asked.map_or(Ok(false), |(number, group)| {
            look_around(group, &self.call, |board| board.who_will_not_come(group.id, number, &group.members))?;
            Ok(false)
        })
    }

    fn wait(&mut self) -> Result<Instant> {
        self.mpi.check_thread(&self.call)?;
        self.finish()
    }

    fn take(mut self: Box<Self>) -> Box<dyn Any> {
        let mut work = lock(&self.work);
        assert!(work.complete.is_some(), "taken only when complete");
        let ranks = self.mpi.size();
        if let Some(mut data) = self.gathered.take() {
            let (part, brought) = (self.call.len * self.call.dtype.size(), bytemuck::cast_slice(&work.output));
            for chunk in self.mpi.chunks(part) {
                let columns = &brought[ranks * chunk.start..ranks * chunk.end];
                put_columns(data.bytes_mut(), part, &chunk, columns);
            }
            return data.into_any();
        }
        if self.call.peer.is_some_and(|root| root.rank != self.mpi.rank()) {
            // This rank has no result.
            return match self.narrow.take() {
                None => Box::new(std::mem::take(&mut *work.input)),
                Some(data) => Box::new(data),
            };
        }
        if self.call.op == Some(Reduce::Mean) {
            work.output.iter_mut().for_each(|x| *x = T::divide(*x, ranks));
        }
        match self.narrow.take() {
            None => Box::new(std::mem::take(&mut *work.output)),
            Some(mut data) => {
                data.truncate(self.call.len);
                data.iter_mut().zip(&*work.output).for_each(|(x, &wide)| *x = T::narrow(wide));
                Box::new(data)
            }
        }
    }
}

impl<T: Element> Drop for Started<T>
where
    T::Wide: Equivalence,
{
    fn drop(&mut self) {
        // On a panic the job ends, and the other ranks may never come; elsewhere than on the MPI thread nothing can be
        // waited for; and if waiting ends in an error, who fails the run says why.
        if std::thread::panicking() || self.mpi.check_thread(&self.call).is_err() || self.finish().is_err() {
            return;
        }
        // The library is done with them.
        let mut work = lock(&self.work);
        for vector in [std::mem::take(&mut *work.input), std::mem::take(&mut *work.output)] {
            self.mpi.keep_spare(vector);
        }
    }
}
