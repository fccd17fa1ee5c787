//! The MPI transport: ranks are processes, and the MPI library executes the collectives.
//!
//! Each process is one rank. One thread of known stack size initialises MPI and makes all its
//! calls, which is the least that a library must support (`Funneled`). So [`MpiWorld`] owns a
//! thread and runs all work there. The library chooses the order of additions. With two ranks the
//! bits are those of the in-process transport. With more ranks sums may differ in the last place.
//!
//! Reading order: `world.rs` (this process in the job), this file (blocking collectives),
//! `operation.rs` (what a reduction computes), `started.rs` (collectives that continue while the
//! rank computes), `posted.rs` (requests and their memory), `outbox.rs` (messages that are not
//! received yet). Then how ranks make sure that all make the same calls and none hangs:
//! `agreement.rs`, `unposted.rs` (collectives that are not agreed on yet), `waiting.rs`,
//! `notices.rs`, `peers.rs` (a group's members) and `reporter.rs` (what a rank knows).

mod agreement;
mod notices;
mod operation;
mod outbox;
mod peers;
mod posted;
mod reporter;
mod started;
mod unposted;
mod waiting;
mod world;

pub(crate) use world::MpiWorld;

use super::board::{Awaited, Lane};
use super::header;
use super::traffic::by_calls;
use crate::comm::call::{Call, CallKind};
use crate::comm::element::{Element, Reduce};
use crate::comm::meter::lock;
use crate::comm::transport::{Buffer, Membership, Progress, Transport};
use crate::comm::uneven::Counts;
use crate::comm::{Comm, CommError, Report, Result};
use agreement::Agreement;
use mpi::collective::{CommunicatorCollectives, Root};
use mpi::datatype::{Equivalence, Partition, PartitionMut};
use mpi::point_to_point::{Destination, Source};
use mpi::request::{Request, StaticScope};
use mpi::topology::{Color, Communicator, SimpleCommunicator};
use operation::InMpi;
use reporter::Reporter;
use started::Started;
use std::any::Any;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use std::time::Duration;
use waiting::look_around;

/// One rank's end of one MPI communicator.
struct Mpi {
    comm: ManuallyDrop<SimpleCommunicator>,
    membership: Membership,
    /// How ranks compare their calls. None: they do not.
    group: Option<Agreement>,
    thread: ThreadId,
    /// The most elements, or bytes, of one MPI call, whose counts are C integers.
    most: usize,
    reporter: Arc<Reporter>,
    /// Vectors of earlier calls, for the next call of the same length.
    spare: Mutex<Vec<Box<dyn Any + Send>>>,
}

// SAFETY: the communicator and the requests are raw handles of the MPI library, which two threads
// must not use at the same time. Every method first checks that it runs on the MPI thread, and
// `Drop` frees nothing elsewhere.
unsafe impl Send for Mpi {}
// SAFETY: as above.
unsafe impl Sync for Mpi {}

impl Mpi {
    fn new(
        comm: SimpleCommunicator,
        membership: Membership,
        group: Option<Agreement>,
        reporter: Arc<Reporter>,
    ) -> Mpi {
        // Tests make it small. It must fit into a C integer.
        let most = std::env::var("SHARDLAB_MPI_CHUNK").ok().and_then(|text| text.parse().ok());
        Mpi {
            comm: ManuallyDrop::new(comm),
            membership,
            group,
            reporter,
            thread: std::thread::current().id(),
            most: most.filter(|&most| most > 0).unwrap_or(1 << 30),
            spare: Mutex::default(),
        }
    }

    fn check_thread(&self, call: &Call) -> Result<()> {
        if std::thread::current().id() == self.thread {
            return Ok(());
        }
        Err(CommError::invalid(
            call,
            "a Comm over MPI works only on the thread that it was handed to; move the call there",
        ))
    }

    /// Every blocking collective calls this first.
    fn enter(&self, call: &Call) -> Result<()> {
        self.check_thread(call)?;
        let Some(group) = &self.group else {
            return Ok(());
        };
        let mut question = group.ask(call);
        // The library takes a group's collectives in the order in which they are posted.
        started::post_until(group, || false)?;
        group.agree(&mut question)
    }

    /// Whether a message for `call`, which receives, has arrived.
    fn is_here(&self, call: &Call) -> bool {
        self.peer(call).immediate_probe_with_tag(call.tag.into()).is_some()
    }

    /// The lane of the messages between this rank and the call's peer.
    fn lane(&self, group: &Agreement, call: &Call) -> Lane {
        (group.peers.id, call.peer().in_world, call.tag)
    }

    /// Returns an error if the run has failed, or if the sender has ended and its message has not
    /// arrived.
    fn look_for_sender(&self, group: &Agreement, call: &Call) -> Result<()> {
        let sender = call.peer().in_world;
        let result =
            look_around(&group.peers, call, |board| board.has_ended(sender).then_some(sender));
        if result.is_err() {
            // The sender's last messages may still be in flight: they use a different communicator.
            std::thread::sleep(Duration::from_millis(200));
            return if self.is_here(call) { Ok(()) } else { result };
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.membership.size()
    }

    /// Counts what a call has to send: the library does not report what it sends.
    fn count(&self, call: &Call) {
        self.membership.meter.sent(by_calls(call, self.membership.rank, self.size()));
    }

    /// The root of a rooted collective, or the other side of a message.
    fn peer(&self, call: &Call) -> mpi::topology::Process<'_> {
        self.comm.process_at_rank(call.peer().rank as i32)
    }

    /// `0..len` in chunks that fit into one MPI call.
    fn chunks(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let most = self.most;
        (0..len.div_ceil(most)).map(move |i| i * most..len.min((i + 1) * most))
    }

    /// The input and the output of the MPI calls that a collective consists of. The input of a
    /// reduce-scatter and the output of an all-gather have one part per rank.
    fn calls<'a, W>(
        &self,
        call: &Call,
        input: &'a [W],
        output: &'a mut [W],
    ) -> impl Iterator<Item = (&'a [W], &'a mut [W])> + use<'a, W> {
        let kind = call.kind.collective();
        let parts = |is_it: bool| {
            if is_it { self.size() * self.most } else { self.most }
        };
        let from = parts(kind == CallKind::ReduceScatter);
        let to = parts(kind == CallKind::AllGather);
        input.chunks(from).zip(output.chunks_mut(to))
    }

    /// A blocking reduction of `send` in a reduce-scatter, else of `recv`. Overwrites `recv` with
    /// the result if this rank has one.
    fn reduce<T: Element<Wide: Equivalence>>(&self, call: &Call, send: &[u8], recv: &mut [u8]) {
        let data: &[T] = bytemuck::cast_slice(if call.kind == CallKind::ReduceScatter {
            send
        } else {
            recv
        });
        let input = self.in_chunks(call, data.iter().map(|x| x.widen()).collect());
        let op = InMpi::of::<T::Wide>(call.op());
        let mut output = input[..call.len].to_vec();
        for (from, to) in self.calls(call, &input, &mut output) {
            match call.peer {
                None if call.kind == CallKind::AllReduce => self.comm.all_reduce_into(from, to, op),
                None => self.comm.reduce_scatter_block_into(from, to, op),
                Some(root) if root.rank == self.membership.rank => {
                    self.peer(call).reduce_into_root(from, to, op)
                }
                Some(_) => self.peer(call).reduce_into(from, op),
            }
        }
        self.divide::<T>(call, &mut output);
        if call.peer.is_none_or(|root| root.rank == self.membership.rank) {
            narrow::<T>(&output, recv);
        }
    }

    /// Posts a non-blocking collective.
    fn post<W: Equivalence>(
        &self,
        call: &Call,
        input: &'static [W],
        output: &'static mut [W],
    ) -> Vec<Request<'static, [W], StaticScope>> {
        let op = call.op.map(InMpi::of::<W>);
        let post = |(from, to)| match (op, call.peer) {
            (None, _) => self.comm.immediate_all_gather_into(StaticScope, from, to),
            (Some(op), None) if call.kind == CallKind::StartAllReduce => {
                self.comm.immediate_all_reduce_into(StaticScope, from, to, op)
            }
            (Some(op), None) => {
                self.comm.immediate_reduce_scatter_block_into(StaticScope, from, to, op)
            }
            (Some(op), Some(root)) if root.rank == self.membership.rank => {
                self.peer(call).immediate_reduce_into_root(StaticScope, from, to, op)
            }
            (Some(op), Some(_)) => self.peer(call).immediate_reduce_into(StaticScope, from, op),
        };
        self.calls(call, input, output).map(post).collect()
    }

    /// Posts an all-to-all with unequal parts, as messages: a call of the library would need its
    /// counts until it is complete, and they are C integers. All ranks post exchanges in one order,
    /// in which messages of one tag arrive. An element is `size` numbers of the vectors.
    fn post_exchange<W: Equivalence>(
        &self,
        counts: &Counts,
        size: usize,
        input: &'static [W],
        mut output: &'static mut [W],
    ) -> Vec<Request<'static, [W], StaticScope>> {
        const TAG: i32 = Comm::MAX_TAG as i32 + 1;
        let me = self.membership.rank;
        let mut requests = Vec::new();
        for other in 0..self.size() {
            let process = self.comm.process_at_rank(other as i32);
            let (arriving, rest) =
                std::mem::take(&mut output).split_at_mut(counts.sends(other, me) * size);
            output = rest;
            for chunk in arriving.chunks_mut(self.most) {
                requests.push(process.immediate_receive_into_with_tag(StaticScope, chunk, TAG));
            }
            let part = counts.part(me, other);
            for chunk in input[part.start * size..part.end * size].chunks(self.most) {
                requests.push(process.immediate_send_with_tag(StaticScope, chunk, TAG));
            }
        }
        requests
    }

    /// A blocking collective that only copies: `one` bytes from each rank to each.
    fn copy(&self, call: &Call, one: usize, send: &[u8], recv: &mut [u8]) {
        let is_root = call.peer.is_some_and(|root| root.rank == self.membership.rank);
        let parts = if call.kind == CallKind::Scatter { 1 } else { self.size() };
        for chunk in self.chunks(one) {
            let from = columns(send, one, &chunk);
            let mut to = vec![0; parts * chunk.len()];
            match call.kind {
                CallKind::AllToAll => self.comm.all_to_all_into(&from[..], &mut to[..]),
                CallKind::Scatter if is_root => {
                    self.peer(call).scatter_into_root(&from[..], &mut to[..])
                }
                CallKind::Scatter => self.peer(call).scatter_into(&mut to[..]),
                CallKind::Gather if is_root => {
                    self.peer(call).gather_into_root(&from[..], &mut to[..])
                }
                CallKind::Gather => self.peer(call).gather_into(&from[..]),
                _ => self.comm.all_gather_into(&from[..], &mut to[..]),
            }
            put_columns(recv, one, &chunk, &to);
        }
    }

    /// Orders the input of a reduce-scatter so that each MPI call gets one slice of it.
    fn in_chunks<W: Copy>(&self, call: &Call, input: Vec<W>) -> Vec<W> {
        if call.kind.collective() != CallKind::ReduceScatter || call.len <= self.most {
            return input;
        }
        self.chunks(call.len)
            .flat_map(|chunk| columns(&input, call.len, &chunk))
            .collect()
    }

    /// Divides a sum by the number of ranks if the call asks for the mean.
    fn divide<T: Element>(&self, call: &Call, sum: &mut [T::Wide]) {
        if call.op == Some(Reduce::Mean) {
            for x in sum {
                *x = T::divide(*x, self.size());
            }
        }
    }

    /// A vector of `len` elements with any values: one from an earlier call, or a new one.
    fn take_spare<W: bytemuck::Pod>(&self, len: usize) -> Vec<W> {
        let mut spare = lock(&self.spare);
        let fits = |vector: &Box<dyn Any + Send>| {
            vector.downcast_ref::<Vec<W>>().is_some_and(|v| v.len() == len)
        };
        match spare.iter().position(fits) {
            Some(i) => *spare.swap_remove(i).downcast().expect("of the type that was looked for"),
            None => vec![W::zeroed(); len],
        }
    }

    fn keep_spare<W: Send + 'static>(&self, vector: Vec<W>) {
        let mut spare = lock(&self.spare);
        // Enough for the buckets of a training step. The limit keeps a program whose lengths always
        // change from filling the memory.
        if !vector.is_empty() && spare.len() < 256 {
            spare.push(Box::new(vector));
        }
    }
}

/// Parts that lie one after the other, as MPI wants to know it.
struct Layout {
    counts: Vec<i32>,
    starts: Vec<i32>,
}

impl Layout {
    fn of(parts: &[Range<usize>]) -> Layout {
        let counts: Vec<i32> = parts.iter().map(|part| part.len() as i32).collect();
        let starts = counts.iter().scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start)
        });
        Layout { starts: starts.collect(), counts }
    }
}

/// A message's heading, which is sent first: length, type, label.
fn heading(call: &Call) -> [u64; 3] {
    [call.len as u64, call.dtype as u64, header::label(call)]
}

/// Writes wide numbers to `out`, as elements of type `T`.
fn narrow<T: Element>(wide: &[T::Wide], out: &mut [u8]) {
    for (x, &wide) in bytemuck::cast_slice_mut(out).iter_mut().zip(wide) {
        *x = T::narrow(wide);
    }
}

/// The same chunk of each part of `all`, side by side. Parts have `len` elements.
fn columns<T: Copy>(all: &[T], len: usize, chunk: &Range<usize>) -> Vec<T> {
    all.chunks_exact(len.max(1))
        .flat_map(|part| &part[chunk.clone()])
        .copied()
        .collect()
}

/// Writes chunks that lie side by side to the parts of `all`: the opposite of [`columns`].
fn put_columns(all: &mut [u8], len: usize, chunk: &Range<usize>, columns: &[u8]) {
    let parts = all.chunks_exact_mut(len.max(1)).zip(columns.chunks_exact(chunk.len()));
    for (part, column) in parts {
        part[chunk.clone()].copy_from_slice(column);
    }
}

impl Transport for Mpi {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn collective(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        self.count(call);
        match call.kind {
            CallKind::Barrier => self.comm.barrier(),
            CallKind::AllReduce | CallKind::Reduce | CallKind::ReduceScatter => {
                by_type!(call.dtype, T => self.reduce::<T>(call, send, recv));
            }
            CallKind::Broadcast => {
                for chunk in self.chunks(recv.len()) {
                    self.peer(call).broadcast_into(&mut recv[chunk]);
                }
            }
            CallKind::Scatter => self.copy(call, recv.len(), send, recv),
            CallKind::AllToAll => self.copy(call, send.len() / self.size(), send, recv),
            _ => self.copy(call, send.len(), send, recv),
        }
        Ok(())
    }

    fn exchange(&self, call: &Call, counts: &Counts, send: &[u8], recv: &mut [u8]) -> Result<()> {
        self.enter(call)?;
        let me = self.membership.rank;
        let size = call.dtype.size();
        self.membership.meter.sent((counts.leaving(me) * size) as u64);
        // All ranks' chunks of one MPI call together fit into a C integer, too.
        let most = (self.most / self.size()).max(1);
        let ranks = 0..self.size();
        let parts = ranks.clone().flat_map(|from| ranks.clone().map(move |to| (from, to)));
        let longest = parts.map(|(from, to)| counts.sends(from, to)).max().unwrap_or(0) * size;
        for chunk in 0..longest.div_ceil(most) {
            // What this call takes of a part.
            let taken = |part: Range<usize>| {
                let part = part.start * size..part.end * size;
                let start = part.end.min(part.start + chunk * most);
                start..part.end.min(start + most)
            };
            let parts: Vec<Range<usize>> =
                (0..self.size()).map(|to| taken(counts.part(me, to))).collect();
            let places: Vec<Range<usize>> =
                (0..self.size()).map(|from| taken(counts.place(from, me))).collect();
            // The address of an empty vector of bytes is 1, which is Open MPI's MPI_IN_PLACE.
            let mut from = vec![0u8];
            parts.iter().for_each(|part| from.extend(&send[part.clone()]));
            let mut to = vec![0u8; 1 + places.iter().map(Range::len).sum::<usize>()];
            let [leaving, arriving] = [&parts, &places].map(|ranges| Layout::of(ranges));
            let from = Partition::new(&from[1..], &leaving.counts[..], &leaving.starts[..]);
            let mut into =
                PartitionMut::new(&mut to[1..], &arriving.counts[..], &arriving.starts[..]);
            self.comm.all_to_all_varcount_into(&from, &mut into);
            let mut arrived = &to[1..];
            for place in places {
                let (mine, rest) = arrived.split_at(place.len());
                recv[place].copy_from_slice(mine);
                arrived = rest;
            }
        }
        Ok(())
    }

    fn start(
        self: Arc<Self>,
        call: &Call,
        counts: Option<Counts>,
        data: Box<dyn Buffer>,
    ) -> Result<Box<dyn Progress>> {
        self.check_thread(call)?;
        if let Some(counts) = counts {
            let leaving = counts.leaving(self.membership.rank) * call.dtype.size();
            self.membership.meter.sent(leaving as u64);
            return Ok(Started::exchange(self, call, counts, data));
        }
        self.count(call);
        if call.kind == CallKind::StartAllGather {
            return Ok(Started::gather(self, call, data));
        }
        Ok(by_type!(call.dtype, T => Started::<T>::reduce(self, call, data)))
    }

    fn send(&self, call: &Call, data: &[u8]) -> Result<()> {
        self.check_thread(call)?;
        self.count(call);
        let receiver = self.peer(call);
        let tag = call.tag.into();
        outbox::with(|outbox| {
            outbox.clear(false);
            // A heading first: the receiver can compare it with what it expects.
            outbox.send(&receiver, tag, bytemuck::cast_slice(&heading(call)));
            for chunk in self.chunks(data.len()) {
                outbox.send(&receiver, tag, &data[chunk]);
            }
        });
        if let Some(group) = &self.group {
            self.reporter.note_sent(self.lane(group, call), call);
        }
        Ok(())
    }

    fn recv(&self, call: &Call, data: &mut [u8]) -> Result<()> {
        self.check_thread(call)?;
        if let Some(group) = &self.group {
            let lane = self.lane(group, call);
            let what = Awaited::Message { lane, received: self.reporter.received(lane) };
            let describe = || (self.reporter.info(call), what);
            waiting::wait(
                &group.peers,
                call,
                describe,
                || Ok(self.is_here(call)),
                || self.look_for_sender(group, call),
            )?;
            self.reporter.note_received(lane);
        }
        let mut heading = heading(call);
        let tag = call.tag.into();
        let [len, dtype, label] = heading;
        self.peer(call).receive_into_with_tag(bytemuck::bytes_of_mut(&mut heading), tag);
        if heading[..2] != [len, dtype] || (heading[2] != label && heading[2] != 0 && label != 0) {
            return Err(CommError::MessageDiffers {
                from: call.peer().in_world,
                len: heading[0] as usize,
                sent: None,
                call: Box::new(self.reporter.info(call)),
                report: Box::new(Report::default()),
            });
        }
        for chunk in self.chunks(data.len()) {
            self.peer(call).receive_into_with_tag(&mut data[chunk], tag);
        }
        Ok(())
    }

    fn probe(&self, call: &Call) -> Result<bool> {
        self.check_thread(call)?;
        unposted::post_agreed();
        if self.is_here(call) {
            return Ok(true);
        }
        if let Some(group) = &self.group {
            self.look_for_sender(group, call)?;
        }
        Ok(self.is_here(call))
    }

    fn group(&self, call: &Call, members: &[usize]) -> Result<Arc<dyn Transport>> {
        // MPI's colors and keys are C integers: the color is the first member, and the key is the
        // rank in the new group.
        let first = members.iter().copied().min().unwrap_or_default();
        // Two numbers have the same sum in both orders.
        let membership = self.membership.of_group(members, members.len() <= 2);
        // MPI can split only in a call that waits for all ranks. So they come together right before
        // it.
        if let Some(group) = &self.group {
            group.come_together(call)?;
        }
        let color = Color::with_value(first as i32);
        let comm = self.comm.split_by_color_with_key(color, membership.rank as i32);
        let comm = comm.expect("MPI gives a communicator to every rank that names a color");
        let mut part = Mpi::new(comm, membership, None, self.reporter.clone());
        if let Some(group) = &self.group {
            let members = part.membership.members.clone();
            part.group = Some(group.of_part(call, &part.comm, group.id_of_part(first), members)?);
        }
        Ok(Arc::new(part))
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        // Off its thread the communicator must not be freed, and neither while it may be in use:
        // then it stays with the process.
        if std::thread::current().id() == self.thread && !posted::is_abandoned() {
            if let Some(group) = &mut self.group {
                group.free();
            }
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.comm) };
        }
    }
}
