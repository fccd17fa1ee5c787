//! Non-blocking collectives: requests of the MPI library that go on while the rank computes.

use super::agreement::Question;
use super::{Mpi, columns, in_mpi, put_columns};
use crate::comm::Result;
use crate::comm::call::{Call, Kind};
use crate::comm::element::{Element, Reduce};
use crate::comm::pending::{Buffer, UnderWay, vector};
use crate::comm::transport::Transport;
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::datatype::Equivalence;
use mpi::request::{Request, StaticScope};
use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

/// A non-blocking collective of this rank: one request for each stretch. An all-gather moves bytes.
pub(super) struct Started<T: Element> {
    mpi: Arc<Mpi>,
    call: Call,
    /// What is sent, and nobody may change meanwhile.
    input: ManuallyDrop<Vec<T::Wide>>,
    /// Where the library writes, and nobody may look meanwhile.
    output: ManuallyDrop<Vec<T::Wide>>,
    /// What was handed over, unless it is `input` itself.
    narrow: Option<Vec<T>>,
    /// What was handed over to an all-gather.
    gathered: Option<Box<dyn Buffer>>,
    requests: Vec<Request<'static, [T::Wide], StaticScope>>,
    /// Whether all ranks mean this call.
    question: Option<Question>,
    /// When this rank has seen the last request complete.
    complete: Option<Instant>,
}

// SAFETY: as for `Mpi`: every method first checks that it runs on the MPI thread, and elsewhere `Drop` frees nothing.
unsafe impl<T: Element> Send for Started<T> {}

impl<T: Element> Started<T> {
    /// Whether all ranks are known to mean this call; an error if they do not.
    fn is_agreed(&mut self) -> Result<bool> {
        match (&self.mpi.group, &mut self.question) {
            (Some(group), Some(question)) => group.poll(question),
            _ => Ok(true),
        }
    }
}

impl<T: Element> Started<T>
where
    T::Wide: Equivalence,
{
    pub fn new(mpi: Arc<Mpi>, call: &Call, data: Box<dyn Buffer>) -> Started<T> {
        // Where arithmetic is done in the type itself, the vector is sent as it is.
        let (input, narrow) = match data.into_any().downcast::<Vec<T::Wide>>() {
            Ok(data) => (*data, None),
            Err(data) => {
                let data: Vec<T> = vector(data);
                let mut wide = mpi.take_spare(data.len());
                wide.iter_mut().zip(&data).for_each(|(wide, &x): (&mut T::Wide, _)| *wide = x.widen());
                (wide, Some(data))
            }
        };
        let (mut input, mut output) = (ManuallyDrop::new(input), ManuallyDrop::new(mpi.take_spare(call.len)));
        let op = in_mpi(call.op.expect("a reducing call names its reduction"));
        let scatters = call.kind == Kind::StartReduceScatter;
        let parts = if scatters { mpi.size() } else { 1 };
        if scatters && call.len > mpi.most {
            // What a request takes must lie in one piece.
            let in_order: Vec<T::Wide> =
                mpi.stretches(call.len).flat_map(|stretch| columns(&input, call.len, &stretch)).collect();
            input.copy_from_slice(&in_order);
        }
        let mut requests = Vec::new();
        for stretch in mpi.stretches(call.len) {
            // SAFETY: both vectors' memory stays where it is, and is neither read, written nor freed, until no request is
            // left: `finish` looks at them after the last one is complete, and `Drop` waits, or frees nothing.
            let (from, to) = unsafe {
                let from: *const [T::Wide] = &input[parts * stretch.start..parts * stretch.end];
                let to: *mut [T::Wide] = &mut output[stretch];
                (&*from, &mut *to)
            };
            requests.push(match call.peer {
                Some(root) if root == mpi.rank() => {
                    mpi.root(root).immediate_reduce_into_root(StaticScope, from, to, op)
                }
                Some(root) => mpi.root(root).immediate_reduce_into(StaticScope, from, op),
                None if scatters => mpi.comm.immediate_reduce_scatter_block_into(StaticScope, from, to, op),
                None => mpi.comm.immediate_all_reduce_into(StaticScope, from, to, op),
            });
        }
        let question = mpi.group.as_ref().map(|group| group.ask(call));
        Started { mpi, call: *call, input, output, narrow, gathered: None, requests, question, complete: None }
    }

    /// Lets the library work; `to_the_end`: until it is done.
    fn progress(&mut self, to_the_end: bool) {
        for request in std::mem::take(&mut self.requests) {
            if to_the_end {
                request.wait_without_status();
            } else if let Err(request) = request.test() {
                self.requests.push(request);
            }
        }
        if self.requests.is_empty() {
            self.complete.get_or_insert_with(Instant::now);
        }
    }
}

impl Started<u8> {
    pub fn gather(mpi: Arc<Mpi>, call: &Call, mut data: Box<dyn Buffer>) -> Started<u8> {
        let (ranks, part) = (mpi.size(), call.len * call.dtype.size());
        let mut input = ManuallyDrop::new(mpi.take_spare(part));
        input.copy_from_slice(&data.bytes_mut()[mpi.rank() * part..][..part]);
        let mut output = ManuallyDrop::new(mpi.take_spare(ranks * part));
        let mut requests = Vec::new();
        for stretch in mpi.stretches(part) {
            // SAFETY: as in `Started::new`.
            let (from, to) = unsafe {
                let from: *const [u8] = &input[stretch.clone()];
                let to: *mut [u8] = &mut output[ranks * stretch.start..ranks * stretch.end];
                (&*from, &mut *to)
            };
            requests.push(mpi.comm.immediate_all_gather_into(StaticScope, from, to));
        }
        let question = mpi.group.as_ref().map(|group| group.ask(call));
        let (call, narrow, gathered) = (*call, None, Some(data));
        Started { mpi, call, input, output, narrow, gathered, requests, question, complete: None }
    }
}

impl<T: Element> UnderWay for Started<T>
where
    T::Wide: Equivalence,
{
    fn test(&mut self) -> Result<bool> {
        self.mpi.check_thread(&self.call)?;
        if self.is_agreed()? {
            self.progress(false);
        }
        Ok(self.complete.is_some())
    }

    fn wait(&mut self) -> Result<Instant> {
        self.mpi.check_thread(&self.call)?;
        if let (Some(group), Some(question)) = (&self.mpi.group, &mut self.question) {
            group.agree(question)?;
        }
        self.progress(true);
        Ok(self.complete.unwrap_or_else(Instant::now))
    }

    fn take(mut self: Box<Self>) -> Box<dyn Any> {
        assert!(self.requests.is_empty(), "taken only when complete");
        let ranks = self.mpi.size();
        if let Some(mut data) = self.gathered.take() {
            let (part, brought) = (self.call.len * self.call.dtype.size(), bytemuck::cast_slice(&self.output));
            for stretch in self.mpi.stretches(part) {
                let columns = &brought[ranks * stretch.start..ranks * stretch.end];
                put_columns(data.bytes_mut(), part, &stretch, columns);
            }
            return data.into_any();
        }
        if self.call.peer.is_some_and(|root| root != self.mpi.rank()) {
            // This rank has no result.
            return match self.narrow.take() {
                None => Box::new(std::mem::take(&mut *self.input)),
                Some(data) => Box::new(data),
            };
        }
        if self.call.op == Some(Reduce::Mean) {
            self.output.iter_mut().for_each(|x| *x = T::divide(*x, ranks));
        }
        match self.narrow.take() {
            None => Box::new(std::mem::take(&mut *self.output)),
            Some(mut data) => {
                data.truncate(self.call.len);
                data.iter_mut().zip(&*self.output).for_each(|(x, &wide)| *x = T::narrow(wide));
                Box::new(data)
            }
        }
    }
}

impl<T: Element> Drop for Started<T> {
    fn drop(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        // On a panic the job ends, and the other ranks may never come; elsewhere than on the MPI thread nothing can be
        // waited for. Requests then stay with the process, and their vectors too.
        if std::thread::panicking() || self.mpi.check_thread(&self.call).is_err() {
            std::mem::forget(requests);
            return;
        }
        if let (Some(group), Some(question)) = (&self.mpi.group, &mut self.question)
            && group.agree(question).is_err()
        {
            // The run has failed, and who fails it says why.
            return std::mem::forget(requests);
        }
        requests.into_iter().for_each(Request::wait_without_status);
        // The library is done with them.
        for vector in [std::mem::take(&mut *self.input), std::mem::take(&mut *self.output)] {
            self.mpi.keep_spare(vector);
        }
    }
}
