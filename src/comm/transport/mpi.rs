//! The MPI transport: ranks are processes, and a collective is the MPI library's own.
//!
//! Each process is one rank. MPI is initialised once and all its calls are made on one thread of known stack size (the
//! library is asked for no more than that, `Funneled`), so [`MpiWorld`] owns a thread and work is sent to it.
//! Sums are added in the order that the library chooses: with two ranks the bits are those of the in-process transport,
//! with more they may differ in the last place, and a NaN in a minimum or maximum may be lost.
//!
//! Reading order: `world.rs` (this process in the job), this file (blocking collectives), `started.rs` (those that go on while
//! the rank computes); then how ranks see to it that all mean the same and nobody hangs: `agreement.rs`, `waiting.rs`,
//! `notices.rs`, with `reporter.rs` (what a rank knows) and `outbox.rs` (messages that are not received yet).

mod agreement;
mod notices;
mod outbox;
mod reporter;
mod started;
mod waiting;
mod world;

pub(crate) use world::MpiWorld;

use super::Transport;
use super::board::{Awaited, Lane};
use super::run::FITTING;
use super::{Buffer, UnderWay};
use crate::comm::call::{Call, Kind};
use crate::comm::element::{Element, Reduce, elements};
use crate::comm::meter::{Meter, Meters};
use crate::comm::recorder::Recorder;
use crate::comm::{CommError, Dtype, Result};
use agreement::Agreement;
use half::{bf16, f16};
use mpi::collective::{CommunicatorCollectives, Root, SystemOperation};
use mpi::datatype::Equivalence;
use mpi::point_to_point::Source;
use mpi::topology::{Color, Communicator, SimpleCommunicator};
use outbox::Outbox;
use reporter::Reporter;
use started::Started;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;
use waiting::{Waiting, look_around};

/// One rank's place in one MPI communicator.
struct Mpi {
    comm: ManuallyDrop<SimpleCommunicator>,
    /// The members' numbers in the world.
    members: Arc<[usize]>,
    /// None: nobody asks whether all mean the same call.
    group: Option<Agreement>,
    thread: ThreadId,
    meter: Arc<Meter>,
    meters: Meters,
    /// The most elements, or bytes, of one MPI call, whose counts are C integers.
    most: usize,
    reporter: Arc<Reporter>,
    sends: Mutex<Outbox>,
    /// Vectors that earlier non-blocking calls have left, for the next one of the same length.
    spare: Mutex<Vec<Box<dyn Any + Send>>>,
}

// SAFETY: the communicator and the requests are raw handles of the MPI library, which must not be used from two threads at
// once. Every method first checks that it runs on the MPI thread, and `Drop` frees nothing elsewhere.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    fn new(
        comm: SimpleCommunicator,
        members: Arc<[usize]>,
        group: Option<Agreement>,
        reporter: Arc<Reporter>,
        meters: Meters,
    ) -> Mpi {
        // Tests make it small; a C integer is what it must fit into.
        let most = std::env::var("SHARDLAB_MPI_CHUNK").ok().and_then(|text| text.parse().ok());
        Mpi {
            comm: ManuallyDrop::new(comm),
            members,
            group,
            reporter,
            thread: std::thread::current().id(),
            meter: meters.add(),
            meters,
            most: most.filter(|&most| most > 0).unwrap_or(1 << 30),
            sends: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    fn check_thread(&self, call: &Call) -> Result<()> {
        if std::thread::current().id() == self.thread {
            return Ok(());
        }
        Err(CommError::Invalid(format!(
            "{call}: a Comm over MPI works only on the thread that it was handed to; move the call there"
        )))
    }

    /// To be called first in every collective.
    fn enter(&self, call: &Call) -> Result<()> {
        self.check_thread(call)?;
        let Some(group) = &self.group else { return Ok(()) };
        let mut question = group.ask(call);
        // The library takes a group's collectives in the order in which it gets them.
        started::post_all(group)?;
        group.agree(&mut question)
    }

    /// Whether a message for `call` from member `from` is here.
    fn is_here(&self, call: &Call, from: usize) -> bool {
        self.root(from).immediate_probe_with_tag(call.tag.into()).is_some()
    }

    /// The lane of messages between this rank and member `peer`.
    fn lane(&self, group: &Agreement, call: &Call, peer: usize) -> Lane {
        (group.id, self.members[peer], call.tag)
    }

    /// Waits until a message from member `from` is here; an error if it cannot come.
    fn await_message(&self, group: &Agreement, call: &Call, from: usize) -> Result<()> {
        if self.is_here(call, from) {
            return Ok(());
        }
        let lane = self.lane(group, call, from);
        let what = Awaited::Message { lane, received: self.reporter.received(lane) };
        let mut waiting = Waiting::start(group, *call, self.reporter.in_words(call), what);
        while !self.is_here(call, from) {
            self.look_for_sender(group, call, from)?;
            waiting.look()?;
            started::post_agreed();
            std::thread::yield_now();
        }
        waiting.over();
        Ok(())
    }

    /// An error if the run has failed, or if member `from` has ended and its message is not here.
    fn look_for_sender(&self, group: &Agreement, call: &Call, from: usize) -> Result<()> {
        let sender = self.members[from];
        let result = look_around(group, call, |board| board.has_ended(sender).then_some(sender));
        if result.is_err() {
            // What was sent before the sender ended may still be under way, by another communicator.
            std::thread::sleep(Duration::from_millis(200));
            return if self.is_here(call, from) { Ok(()) } else { result };
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn root(&self, root: usize) -> mpi::topology::Process<'_> {
        self.comm.process_at_rank(root as i32)
    }

    /// `0..len` in chunks that one MPI call can take.
    fn chunks(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let most = self.most;
        (0..len.div_ceil(most)).map(move |i| i * most..len.min((i + 1) * most))
    }

    /// Reduces `input` (one part, or for a reduce-scatter one for each rank) into `output`, in the wide type.
    fn reduce_any(&self, call: &Call, how: Reducing, input: &[u8], output: &mut [u8]) {
        match call.dtype {
            Dtype::I32 => self.reduce_typed::<i32>(call, how, input, output),
            Dtype::I64 => self.reduce_typed::<i64>(call, how, input, output),
            Dtype::U64 => self.reduce_typed::<u64>(call, how, input, output),
            Dtype::U8 => self.reduce_typed::<u8>(call, how, input, output),
            Dtype::F16 => self.reduce_typed::<f16>(call, how, input, output),
            Dtype::Bf16 => self.reduce_typed::<bf16>(call, how, input, output),
            Dtype::F32 => self.reduce_typed::<f32>(call, how, input, output),
            Dtype::F64 => self.reduce_typed::<f64>(call, how, input, output),
        }
    }

    fn reduce_typed<T: Element>(&self, call: &Call, how: Reducing, input: &[u8], output: &mut [u8])
    where
        T::Wide: Equivalence,
    {
        let wide: Vec<T::Wide> = elements::<T>(input).map(T::widen).collect();
        let op = call.op.expect("a reducing call names its reduction");
        let mpi_op = in_mpi(op);
        let mut result = wide[..call.len].to_vec();
        for chunk in self.chunks(call.len) {
            let send = columns(&wide, call.len, &chunk);
            let result = &mut result[chunk];
            match how {
                Reducing::All => self.comm.all_reduce_into(&send[..], result, mpi_op),
                Reducing::Scatter => self.comm.reduce_scatter_block_into(&send[..], result, mpi_op),
                Reducing::Root(root) if root == self.rank() => {
                    self.root(root).reduce_into_root(&send[..], result, mpi_op);
                }
                Reducing::Root(root) => self.root(root).reduce_into(&send[..], mpi_op),
            }
        }
        if matches!(how, Reducing::Root(root) if root != self.rank()) {
            return;
        }
        for (out, &x) in output.chunks_exact_mut(size_of::<T>()).zip(&result) {
            let x = if op == Reduce::Mean { T::divide(x, self.size()) } else { x };
            out.copy_from_slice(bytemuck::bytes_of(&T::narrow(x)));
        }
    }

    /// A vector of `len` elements: one that an earlier call has left, or a new one. Its values are any.
    fn take_spare<W: bytemuck::Pod>(&self, len: usize) -> Vec<W> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |vector: &Box<dyn Any + Send>| vector.downcast_ref::<Vec<W>>().is_some_and(|v| v.len() == len);
        match spare.iter().position(fits) {
            Some(i) => *spare.swap_remove(i).downcast().expect("of the type that was looked for"),
            None => vec![W::zeroed(); len],
        }
    }

    fn keep_spare<W: Send + 'static>(&self, vector: Vec<W>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        // As many as a training step has buckets; a program with other lengths every time does not fill the memory.
        if !vector.is_empty() && spare.len() < 256 {
            spare.push(Box::new(vector));
        }
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.sends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// MPI's reduction; a mean is a sum there, and divided here.
fn in_mpi(op: Reduce) -> SystemOperation {
    match op {
        Reduce::Sum | Reduce::Mean => SystemOperation::sum(),
        Reduce::Min => SystemOperation::min(),
        Reduce::Max => SystemOperation::max(),
        Reduce::Prod => SystemOperation::product(),
    }
}

/// What is sent ahead of a message: length, type, label.
fn heading(call: &Call) -> [u64; 3] {
    [call.len as u64, call.dtype as u64, agreement::label(call)]
}

/// Where the result of a reduction goes.
#[derive(Clone, Copy)]
enum Reducing {
    All,
    Root(usize),
    Scatter,
}

/// The same chunk of each of the equal parts of `all`, side by side; parts have `len` elements.
fn columns<T: Copy>(all: &[T], len: usize, chunk: &Range<usize>) -> Vec<T> {
    all.chunks_exact(len.max(1)).flat_map(|part| &part[chunk.clone()]).copied().collect()
}

/// Puts back what [`columns`] took.
fn put_columns(all: &mut [u8], len: usize, chunk: &Range<usize>, columns: &[u8]) {
    let parts = all.chunks_exact_mut(len.max(1)).zip(columns.chunks_exact(chunk.len()));
    parts.for_each(|(part, column)| part[chunk.clone()].copy_from_slice(column));
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.comm.rank() as usize
    }

    fn members(&self) -> &[usize] {
        &self.members
    }

    fn meter(&self) -> &Meter {
        &self.meter
    }

    fn meters(&self) -> &Meters {
        &self.meters
    }

    fn recorder(&self) -> &Recorder {
        &self.reporter.recorder
    }

    fn adds_in_rank_order(&self) -> bool {
        // Of two numbers the sum is the same in both orders.
        self.size() <= 2
    }

    fn barrier(&self, call: &Call) -> Result<()> {
        self.enter(call)?;
        self.comm.barrier();
        Ok(())
    }

    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()> {
        self.check_thread(call)?;
        let (mut outbox, receiver, tag) = (self.outbox(), self.root(to), call.tag.into());
        outbox.clear(false);
        // A heading first, so that a receiver who expects something else can say so.
        outbox.send(&receiver, tag, bytemuck::cast_slice(&heading(call)));
        self.chunks(data.len()).for_each(|chunk| outbox.send(&receiver, tag, &data[chunk]));
        if let Some(group) = &self.group {
            self.reporter.note_sent(self.lane(group, call, to), call);
        }
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()> {
        self.check_thread(call)?;
        if let Some(group) = &self.group {
            self.await_message(group, call, from)?;
            self.reporter.note_received(self.lane(group, call, from));
        }
        let (mut heading, tag) = (heading(call), call.tag.into());
        let [len, dtype, label] = heading;
        self.root(from).receive_into_with_tag(bytemuck::bytes_of_mut(&mut heading), tag);
        if heading[..2] != [len, dtype] || (heading[2] != label && heading[2] != 0 && label != 0) {
            return Err(CommError::Broken(format!(
                "the message does not fit: rank {} sent {} elements that {call} did not expect\nhelp: {FITTING}",
                self.members[from], heading[0]
            )));
        }
        for chunk in self.chunks(data.len()) {
            self.root(from).receive_into_with_tag(&mut data[chunk], tag);
        }
        Ok(())
    }

    fn probe(&self, call: &Call, from: usize) -> Result<bool> {
        self.check_thread(call)?;
        started::post_agreed();
        if self.is_here(call, from) {
            return Ok(true);
        }
        self.group.as_ref().map_or(Ok(()), |group| self.look_for_sender(group, call, from))?;
        Ok(self.is_here(call, from))
    }

    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        let input = data.to_vec();
        self.reduce_any(call, Reducing::All, &input, data);
        Ok(())
    }

    fn start(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>> {
        self.check_thread(call)?;
        Ok(match call.dtype {
            _ if call.kind == Kind::StartAllGather => Started::gather(self, call, data),
            Dtype::I32 => Started::<i32>::reduce(self, call, data),
            Dtype::I64 => Started::<i64>::reduce(self, call, data),
            Dtype::U64 => Started::<u64>::reduce(self, call, data),
            Dtype::U8 => Started::<u8>::reduce(self, call, data),
            Dtype::F16 => Started::<f16>::reduce(self, call, data),
            Dtype::Bf16 => Started::<bf16>::reduce(self, call, data),
            Dtype::F32 => Started::<f32>::reduce(self, call, data),
            Dtype::F64 => Started::<f64>::reduce(self, call, data),
        })
    }

    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        let input = data.to_vec();
        self.reduce_any(call, Reducing::Root(root), &input, data);
        Ok(())
    }

    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for chunk in self.chunks(data.len()) {
            self.root(root).broadcast_into(&mut data[chunk]);
        }
        Ok(())
    }

    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        for chunk in self.chunks(mine.len()) {
            let mut part = vec![0; chunk.len() * self.size()];
            self.comm.all_gather_into(&mine[chunk.clone()], &mut part[..]);
            put_columns(all, mine.len(), &chunk, &part);
        }
        Ok(())
    }

    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        self.reduce_any(call, Reducing::Scatter, all, mine);
        Ok(())
    }

    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for chunk in self.chunks(mine.len()) {
            if self.rank() == root {
                let part = columns(all, mine.len(), &chunk);
                self.root(root).scatter_into_root(&part[..], &mut mine[chunk]);
            } else {
                self.root(root).scatter_into(&mut mine[chunk]);
            }
        }
        Ok(())
    }

    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()> {
        self.enter(call)?;
        for chunk in self.chunks(mine.len()) {
            if self.rank() == root {
                let mut part = vec![0; chunk.len() * self.size()];
                self.root(root).gather_into_root(&mine[chunk.clone()], &mut part[..]);
                put_columns(all, mine.len(), &chunk, &part);
            } else {
                self.root(root).gather_into(&mine[chunk]);
            }
        }
        Ok(())
    }

    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        let len = send.len() / self.size();
        for chunk in self.chunks(len) {
            let part = columns(send, len, &chunk);
            let mut received = vec![0; part.len()];
            self.comm.all_to_all_into(&part[..], &mut received[..]);
            put_columns(recv, len, &chunk, &received);
        }
        Ok(())
    }

    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>> {
        // MPI's colors and keys are C integers: colors are replaced by the first rank that gave them, keys by their order.
        let mut wishes = vec![[0u64; 2]; self.size()];
        let wish = [color, key as u64];
        self.all_gather(call, bytemuck::bytes_of(&wish), bytemuck::cast_slice_mut(&mut wishes))?;
        let mut chosen: Vec<usize> = (0..wishes.len()).filter(|&r| wishes[r][0] == color).collect();
        let first = chosen[0];
        chosen.sort_by_key(|&r| (wishes[r][1] as i64, r));
        let place = chosen.iter().position(|&r| r == self.rank()).unwrap_or_default();
        let comm = self.comm.split_by_color_with_key(Color::with_value(first as i32), place as i32);
        let comm = comm.expect("MPI gives a communicator to every rank that names a color");
        let members: Arc<[usize]> = chosen.iter().map(|&r| self.members[r]).collect();
        let group = self
            .group
            .as_ref()
            .map(|group| Agreement::new(&comm, group.id_of_part(first), members.clone(), self.reporter.clone()));
        Ok(Arc::new(Mpi::new(comm, members, group, self.reporter.clone(), self.meters.clone())))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Off its thread the communicator must not be freed: it stays with the process, which is all that this costs.
        if std::thread::current().id() == self.thread {
            // A receiver may come for these later, or never: `MpiWorld::leave` sees to it.
            outbox::leave_behind(&mut self.outbox());
            self.group.iter_mut().for_each(Agreement::free);
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.comm) };
        }
    }
}
