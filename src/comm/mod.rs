//! Communication between ranks.
//!
//! A [`Comm`] is one rank's handle on a group of ranks: the rank's number, the group's size, and
//! the collectives. It moves slices of numbers, never tensors. A transport moves the bytes, between
//! threads of one process or between MPI processes. Labs need not know which.
//!
//! Reading order: `mod.rs` (the handle), `algorithms/` (what a collective consists of),
//! `element.rs` (what ranks add, and in which order), `pending.rs` (a collective that continues
//! while its rank computes), `uneven.rs` (an all-to-all whose parts differ in length), `call.rs`
//! and `error.rs` (the parts of an error message), `meter.rs` (what communication cost), `link.rs`
//! (what it would cost on a network), `recorder.rs` (what happened before an error), `options.rs`.
//! Behind one door is `transport/`, which moves the bytes; all of MPI is in its folder `mpi/`, and
//! everything else reads without it.

pub mod algorithms;
mod call;
// Its `by_type!` is for transports, too.
#[macro_use]
mod element;
mod error;
mod link;
mod meter;
mod options;
mod pending;
mod recorder;
pub(crate) mod transport;
mod uneven;

pub(crate) use call::Call;
pub use call::{CallInfo, CallKind, Peer};
pub use element::{Dtype, Element, Reduce};
pub(crate) use error::Panicked;
pub use error::{CommError, RankState, Report, Result, Unreceived};
pub use link::Link;
pub use meter::CommTraffic;
pub use options::{Nodes, Options};
pub use pending::{Flight, Pending};
pub use recorder::FlightFile;
pub use transport::sync::cores;
pub(crate) use transport::{ThreadWorld, sync};

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;
use transport::{Membership, Transport};
use uneven::Counts;

/// One rank's handle on a group of ranks.
///
/// All ranks of the group must make the same collective calls, in the same order, with the same
/// length, reduction and root. Otherwise every rank gets an error that lists what each rank did.
/// `send`, `recv` and `probe` concern only two ranks. Lengths are in elements.
///
/// ```
/// use shardlab::comm::{CommError, Reduce};
/// use shardlab::launch;
///
/// // Four ranks, as threads of this process. Each brings its number, and a one.
/// let sums = launch::run(4, |comm| {
///     let mut x = [comm.rank() as f32, 1.0];
///     comm.all_reduce(&mut x, Reduce::Sum)?;
///     Ok(x)
/// })?;
/// // Every rank ends with 0 + 1 + 2 + 3 and 1 + 1 + 1 + 1.
/// assert_eq!(sums, [[6.0, 4.0]; 4]);
///
/// // Rank 2 leaves out a call: an error, where it would otherwise hang.
/// let error = launch::run(4, |comm| match comm.rank() {
///     2 => Ok(()),
///     _ => Ok(comm.barrier()?),
/// });
/// let error = error.unwrap_err().downcast::<CommError>()?;
/// assert!(matches!(error, CommError::RankEnded { rank: 2, .. }));
/// # anyhow::Ok(())
/// ```
///
/// # Errors
/// Every call refuses senseless arguments ([`CommError::Invalid`]), before any rank waits, and
/// fails with [`CommError::Stopped`] once the run has failed for any other reason. Every call that
/// waits for other ranks can also return:
///
/// | error | when |
/// |---|---|
/// | [`CommError::RankEnded`] | a rank that the call needs has returned from its closure |
/// | [`CommError::Deadlock`] | the ranks wait for each other |
/// | [`CommError::DeadlinePassed`] | a rank has not come within [`Options::deadline`] |
/// | [`CommError::CallsDiffer`] | in a collective: a member of the group is in a different one |
///
/// Ranks compare calls by their place in the source. Calls from different places, as in the two
/// arms of an `if`, need the same label: `comm.labelled("weights").broadcast(…)`.
#[derive(Clone)]
pub struct Comm {
    transport: Arc<dyn Transport>,
    name: Option<&'static str>,
    label: Option<&'static str>,
    tag: u16,
}

impl Comm {
    /// The largest tag of a message. Every MPI library accepts one more, which the transport uses.
    pub const MAX_TAG: u16 = 32_766;

    fn new(transport: Arc<dyn Transport>) -> Comm {
        Comm { transport, name: None, label: None, tag: 0 }
    }

    /// A handle on the same group with a name, for errors and the flight recorder's file:
    /// `comm.split(…)?.named("tensor")`.
    pub fn named(self, name: &'static str) -> Comm {
        Comm { name: Some(name), ..self }
    }

    /// A handle on the same group. Ranks compare its calls by `label` instead of by their place in
    /// the source.
    pub fn labelled(&self, label: &'static str) -> Comm {
        Comm { label: Some(label), ..self.clone() }
    }

    /// A handle on the same group, whose messages carry `tag`. Only a call with the same tag
    /// receives such a message. The default tag is 0, and collectives have none.
    ///
    /// Two streams of messages between the same two ranks need two tags, unless both ranks use one
    /// order for all messages.
    pub fn tagged(&self, tag: u16) -> Comm {
        Comm { tag, ..self.clone() }
    }

    /// A world of one rank: the serial program, written with the same calls.
    pub fn alone() -> Comm {
        ThreadWorld::new(1, &Options::default()).comm(0)
    }

    /// This rank's number in the group, 0 to `size() - 1`.
    pub fn rank(&self) -> usize {
        self.transport.membership().rank
    }

    /// The number of ranks in the group. For the group of all ranks, MPI and PyTorch call it the
    /// world size.
    pub fn size(&self) -> usize {
        self.members().len()
    }

    /// The members' numbers in the world, in the order of their numbers in this group.
    pub fn members(&self) -> &[usize] {
        &self.transport.membership().members
    }

    /// This rank's traffic in this group so far. Its bytes are measured between threads, and follow
    /// from the calls over MPI.
    pub fn traffic(&self) -> CommTraffic {
        self.transport.membership().meter.read()
    }

    /// This rank's traffic in all its groups so far.
    pub fn total_traffic(&self) -> CommTraffic {
        self.transport.membership().meter.total()
    }

    /// Whether this group adds in rank order. Then the same numbers add up to the same bits,
    /// however a vector is cut into pieces. An MPI library chooses its own order as soon as more
    /// than two ranks add.
    pub fn adds_in_rank_order(&self) -> bool {
        self.transport.membership().adds_in_rank_order
    }

    /// Divides the group: ranks that give the same `color` form a new group, ordered by `key`, then
    /// by rank here.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]).
    #[track_caller]
    pub fn split(&self, color: u64, key: i64) -> Result<Comm> {
        let call = self.describe::<u8>(CallKind::Split, 0, None, None)?;
        let mut choices = vec![[0u64; 2]; self.size()];
        let transport = self.counted(&call, || {
            let mine = [color, key as u64];
            let all = bytemuck::cast_slice_mut(&mut choices);
            self.transport.collective(&call, bytemuck::cast_slice(&mine), all)?;
            let mut members: Vec<usize> =
                (0..choices.len()).filter(|&rank| choices[rank][0] == color).collect();
            members.sort_by_key(|&rank| (choices[rank][1] as i64, rank));
            self.transport.group(&call, &members)
        })?;
        Ok(Comm::new(transport))
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]).
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.collective::<u8>(&self.describe::<u8>(CallKind::Barrier, 0, None, None)?, &[], &mut [])
    }

    /// Sends `data` to rank `to` without waiting for it. Messages with the same tag arrive in the
    /// order in which they were sent. A message that `to` has not received when the run ends is an
    /// error.
    ///
    /// # Errors
    /// [`CommError::Invalid`] if the group has no rank `to` or the tag is above [`Comm::MAX_TAG`],
    /// [`CommError::Stopped`] if the run has failed.
    #[track_caller]
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Send, data.len(), None, Some(to))?;
        self.counted(&call, || self.transport.send(&call, bytemuck::cast_slice(data)))
    }

    /// Waits for the next message with this handle's tag from rank `from`. The message must be as
    /// long as `data`.
    ///
    /// # Errors
    /// [`CommError::Invalid`] as for [`Comm::send`], [`CommError::MessageDiffers`] if the message
    /// has a different length, type or label, and those of every wait (see [`Comm`]).
    #[track_caller]
    pub fn recv<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Recv, data.len(), None, Some(from))?;
        self.counted(&call, || self.transport.recv(&call, bytemuck::cast_slice_mut(data)))
    }

    /// Whether a message with this handle's tag has arrived from rank `from`. Never waits, so it
    /// has no deadline. An error if the run has failed, or if `from` has ended and no message can
    /// come.
    ///
    /// # Errors
    /// [`CommError::Invalid`] as for [`Comm::send`]. [`CommError::RankEnded`] if `from` has ended
    /// and no message can come. [`CommError::Stopped`] if the run has failed.
    #[track_caller]
    pub fn probe(&self, from: usize) -> Result<bool> {
        self.transport
            .probe(&self.describe::<u8>(CallKind::Probe, 0, None, Some(from))?)
    }

    /// Combines all ranks' `data` element by element. Every rank ends with the result.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]), and [`CommError::Invalid`] for a mean of integers.
    #[track_caller]
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Reduce) -> Result<()> {
        let call = self.describe::<T>(CallKind::AllReduce, data.len(), Some(op), None)?;
        self.collective(&call, &[], data)
    }

    /// Whether `flag` is true on any rank. Every rank gets the same answer.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]).
    #[track_caller]
    pub fn any(&self, flag: bool) -> Result<bool> {
        Ok(self.reduced(u8::from(flag), Reduce::Max)? == 1)
    }

    /// All ranks' numbers combined, on every rank: an all-reduce of one element.
    ///
    /// # Errors
    /// As for [`Comm::all_reduce`].
    #[track_caller]
    pub fn reduced<T: Element>(&self, own: T, op: Reduce) -> Result<T> {
        let mut one = [own];
        self.all_reduce(&mut one, op)?;
        Ok(one[0])
    }

    /// All ranks' parts in rank order, on every rank: an all-gather that makes its own memory.
    ///
    /// # Errors
    /// As for [`Comm::all_gather`].
    #[track_caller]
    pub fn gathered<T: Element>(&self, mine: &[T]) -> Result<Vec<T>> {
        let mut all = vec![T::zeroed(); mine.len() * self.size()];
        self.all_gather(mine, &mut all)?;
        Ok(all)
    }

    /// Starts an all-reduce that continues while this rank computes. [`Pending`] shows when it is
    /// complete, and hands `data` back.
    ///
    /// Several collectives of a group may be in flight. Every rank must start them in the same
    /// order, and in the same order relative to its blocking calls. The rank may wait for them in
    /// any order.
    ///
    /// # Errors
    /// [`CommError::Invalid`] for a mean of integers, [`CommError::CallsDiffer`] and
    /// [`CommError::Stopped`]. Over MPI ranks compare their calls later: then [`Pending`] returns
    /// the difference.
    #[track_caller]
    pub fn start_all_reduce<T: Element>(&self, data: Vec<T>, op: Reduce) -> Result<Pending<T>> {
        let call = self.describe::<T>(CallKind::StartAllReduce, data.len(), Some(op), None)?;
        self.start(call, None, data)
    }

    /// Starts a reduction that continues while this rank computes. `root` gets its vector back with
    /// the result, any other rank gets its vector back unchanged.
    ///
    /// # Errors
    /// Those of [`Comm::start_all_reduce`], and [`CommError::Invalid`] if the group has no rank
    /// `root`.
    #[track_caller]
    pub fn start_reduce<T: Element>(
        &self,
        data: Vec<T>,
        op: Reduce,
        root: usize,
    ) -> Result<Pending<T>> {
        let call = self.describe::<T>(CallKind::StartReduce, data.len(), Some(op), Some(root))?;
        self.start(call, None, data)
    }

    /// Starts an all-gather that continues while this rank computes. `all` has `size()` equal
    /// parts, and rank r fills in part r. [`Pending`] hands it back with all parts.
    ///
    /// # Errors
    /// Those of [`Comm::start_all_reduce`], and [`CommError::Invalid`] if `all` has no `size()`
    /// equal parts.
    #[track_caller]
    pub fn start_all_gather<T: Element>(&self, all: Vec<T>) -> Result<Pending<T>> {
        let part = all.len() / self.size();
        let call = self.describe::<T>(CallKind::StartAllGather, part, None, None)?;
        self.check_parts(&call, all.len())?;
        self.start(call, None, all)
    }

    /// Starts a reduce-scatter that continues while this rank computes. `all` has `size()` equal
    /// parts. [`Pending`] hands rank r the reduced part r, in the same vector.
    ///
    /// # Errors
    /// Those of [`Comm::start_all_reduce`], and [`CommError::Invalid`] if `all` has no `size()`
    /// equal parts.
    #[track_caller]
    pub fn start_reduce_scatter<T: Element>(&self, all: Vec<T>, op: Reduce) -> Result<Pending<T>> {
        let part = all.len() / self.size();
        let call = self.describe::<T>(CallKind::StartReduceScatter, part, Some(op), None)?;
        self.check_parts(&call, all.len())?;
        self.start(call, None, all)
    }

    /// Starts an [`all_to_all_v`](Comm::all_to_all_v) that continues while this rank computes.
    /// [`Pending`] hands back what has arrived: `expects[q]` elements from each rank q.
    ///
    /// Ranks compare their counts first, and wait for each other in that all-gather. Only the data
    /// travels while they compute.
    ///
    /// # Errors
    /// Those of [`Comm::all_to_all_v`], and of [`Comm::start_all_reduce`].
    #[track_caller]
    pub fn start_all_to_all_v<T: Element>(
        &self,
        mut send: Vec<T>,
        sends: &[usize],
        expects: &[usize],
    ) -> Result<Pending<T>> {
        // A sum that overflows fits no slice.
        let arriving = expects.iter().fold(0usize, |sum, &count| sum.saturating_add(count));
        let lens = [send.len(), arriving];
        let (call, counts) =
            self.compare_counts::<T>(CallKind::StartAllToAllV, [sends, expects], lens)?;
        send.resize(send.len() + arriving, T::zeroed());
        self.start(call, Some(counts), send)
    }

    /// Like [`Comm::all_reduce`], but only `root` ends with the result. The other ranks' `data`
    /// stays unchanged.
    ///
    /// # Errors
    /// Those of [`Comm::all_reduce`], and [`CommError::Invalid`] if the group has no rank `root`.
    #[track_caller]
    pub fn reduce<T: Element>(&self, data: &mut [T], op: Reduce, root: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Reduce, data.len(), Some(op), Some(root))?;
        self.collective(&call, &[], data)
    }

    /// Overwrites every rank's `data` with `root`'s.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]), and [`CommError::Invalid`] if the group has no
    /// rank `root`.
    #[track_caller]
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Broadcast, data.len(), None, Some(root))?;
        self.collective(&call, &[], data)
    }

    /// Every rank ends with all ranks' `mine`, in rank order. `all` is `size()` times as long.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]), and [`CommError::Invalid`] if `all` has a
    /// different length.
    #[track_caller]
    pub fn all_gather<T: Element>(&self, mine: &[T], all: &mut [T]) -> Result<()> {
        let call = self.describe::<T>(CallKind::AllGather, mine.len(), None, None)?;
        self.check_parts(&call, all.len())?;
        self.collective(&call, mine, all)
    }

    /// Combines all ranks' `all`, which has `size()` equal parts. Rank r ends with part r of the
    /// result, in `mine`.
    ///
    /// # Errors
    /// Those of [`Comm::all_reduce`], and [`CommError::Invalid`] if `all` is not `size()` times as
    /// long as `mine`.
    #[track_caller]
    pub fn reduce_scatter<T: Element>(&self, all: &[T], mine: &mut [T], op: Reduce) -> Result<()> {
        let call = self.describe::<T>(CallKind::ReduceScatter, mine.len(), Some(op), None)?;
        self.check_parts(&call, all.len())?;
        self.collective(&call, all, mine)
    }

    /// `root` sends part r of `all`, which has `size()` equal parts, to rank r. The other ranks'
    /// `all` is not read.
    ///
    /// # Errors
    /// Those of [`Comm::broadcast`], and on the root [`CommError::Invalid`] if `all` is not
    /// `size()` times as long as `mine`.
    #[track_caller]
    pub fn scatter<T: Element>(&self, all: &[T], mine: &mut [T], root: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Scatter, mine.len(), None, Some(root))?;
        let all = if self.rank() == root {
            self.check_parts(&call, all.len()).map(|()| all)?
        } else {
            &[]
        };
        self.collective(&call, all, mine)
    }

    /// `root` ends with all ranks' `mine`, in rank order. The other ranks' `all` stays unchanged.
    ///
    /// # Errors
    /// Those of [`Comm::broadcast`], and on the root [`CommError::Invalid`] if `all` is not
    /// `size()` times as long as `mine`.
    #[track_caller]
    pub fn gather<T: Element>(&self, mine: &[T], all: &mut [T], root: usize) -> Result<()> {
        let call = self.describe::<T>(CallKind::Gather, mine.len(), None, Some(root))?;
        let all = if self.rank() == root {
            self.check_parts(&call, all.len()).map(|()| all)?
        } else {
            &mut []
        };
        self.collective(&call, mine, all)
    }

    /// Rank r's part q becomes rank q's part r. Both slices have `size()` equal parts.
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]), and [`CommError::Invalid`] if a slice has no
    /// `size()` equal parts.
    #[track_caller]
    pub fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<()> {
        let call = self.describe::<T>(CallKind::AllToAll, send.len() / self.size(), None, None)?;
        self.check_parts(&call, send.len())?;
        self.check_parts(&call, recv.len())?;
        self.collective(&call, send, recv)
    }

    /// [`Comm::all_to_all`] of parts that may be of any length, also of none: `sends[q]` elements
    /// of `send`, which has them in rank order, go to rank q, and `expects[q]` elements arrive from
    /// it in `recv`. A rank with nothing to send and nothing to expect takes part, too.
    ///
    /// Ranks compare their counts first, in an all-gather.
    ///
    /// ```
    /// # use shardlab::launch;
    /// // Each rank sends its number once to rank 0, and twice to rank 1.
    /// let received = launch::run(2, |comm| {
    ///     let sends = [1, 2];
    ///     let mut expects = [0; 2];
    ///     comm.all_to_all(&sends, &mut expects)?;
    ///     let expects = expects.map(|count| count as usize);
    ///     let mut received = vec![0; expects.iter().sum()];
    ///     let sends = sends.map(|count: u64| count as usize);
    ///     comm.all_to_all_v(&[comm.rank() as u64; 3], &sends, &mut received, &expects)?;
    ///     Ok(received)
    /// })?;
    /// assert_eq!(received, [vec![0, 1], vec![0, 0, 1, 1]]);
    /// # anyhow::Ok(())
    /// ```
    ///
    /// # Errors
    /// Those of every collective (see [`Comm`]), and [`CommError::Invalid`]: if counts do not add
    /// up to the slices' lengths, and on every rank if one expects what the sender has not.
    #[track_caller]
    pub fn all_to_all_v<T: Element>(
        &self,
        send: &[T],
        sends: &[usize],
        recv: &mut [T],
        expects: &[usize],
    ) -> Result<()> {
        let lens = [send.len(), recv.len()];
        let (call, counts) =
            self.compare_counts::<T>(CallKind::AllToAllV, [sends, expects], lens)?;
        let send = bytemuck::cast_slice(send);
        let recv = bytemuck::cast_slice_mut(recv);
        self.counted(&call, || self.transport.exchange(&call, &counts, send, recv))
    }

    /// Describes an all-to-all with unequal parts, or refuses it: this rank's counts must add up to
    /// `lens`, and ranks must expect what others send.
    #[track_caller]
    fn compare_counts<T: Element>(
        &self,
        kind: CallKind,
        [sends, expects]: [&[usize]; 2],
        lens: [usize; 2],
    ) -> Result<(Call, Counts)> {
        let size = self.size();
        let call = self.describe::<T>(kind, 0, None, None)?;
        for (counts, elements) in [sends, expects].into_iter().zip(lens) {
            let sum = counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count));
            if counts.len() != size || sum != Some(elements) {
                let sum = sum.map_or("too much".to_string(), |sum| sum.to_string());
                let why = format!(
                    "{} counts for {size} ranks add up to {sum}, and must add up to the {elements} elements of the slice",
                    counts.len()
                );
                return Err(CommError::invalid(&call, why));
            }
        }
        let mut all = vec![0u64; 2 * size * size];
        let counting = self.describe::<u64>(CallKind::AllGather, 2 * size, None, None)?;
        self.collective(&counting, &Counts::mine(sends, expects), &mut all)?;
        let counts = Counts::of_all(&call, size, all)?;
        Ok((Call { len: counts.most(), ..call }, counts))
    }

    /// Describes a call, or refuses it.
    #[track_caller]
    fn describe<T: Element>(
        &self,
        kind: CallKind,
        len: usize,
        op: Option<Reduce>,
        peer: Option<usize>,
    ) -> Result<Call> {
        let in_world = |rank: usize| self.members().get(rank).copied().unwrap_or(rank);
        let is_message = matches!(kind, CallKind::Send | CallKind::Recv | CallKind::Probe);
        let call = Call {
            kind,
            dtype: T::DTYPE,
            len,
            op,
            peer: peer.map(|rank| Peer { rank, in_world: in_world(rank) }),
            tag: if is_message { self.tag } else { 0 },
            group: self.name,
            at: Location::caller(),
            label: self.label,
        };
        let size = self.size();
        if op == Some(Reduce::Mean) && !call.dtype.is_float() {
            return Err(CommError::invalid(
                &call,
                "integers have no mean; use sum and divide, or send floats",
            ));
        }
        if let Some(peer) = peer.filter(|&peer| peer >= size) {
            let last = size - 1;
            let why =
                format!("there is no rank {peer} in a group of {size} (ranks are 0 to {last})");
            return Err(CommError::invalid(&call, why));
        }
        if call.tag > Comm::MAX_TAG {
            return Err(CommError::invalid(&call, format!("tags are 0 to {}", Comm::MAX_TAG)));
        }
        Ok(call)
    }

    fn collective<T: Element>(&self, call: &Call, send: &[T], recv: &mut [T]) -> Result<()> {
        let send = bytemuck::cast_slice(send);
        let recv = bytemuck::cast_slice_mut(recv);
        self.counted(call, || self.transport.collective(call, send, recv))
    }

    fn start<T: Element>(
        &self,
        call: Call,
        counts: Option<Counts>,
        data: Vec<T>,
    ) -> Result<Pending<T>> {
        let start = Instant::now();
        let transport = self.transport.clone();
        let in_flight =
            self.counted(&call, || transport.clone().start(&call, counts, Box::new(data)))?;
        Ok(Pending {
            in_flight,
            call,
            number: transport.membership().recorder.number(),
            transport,
            start,
            elements: PhantomData,
        })
    }

    /// Makes a call, records it and measures it.
    fn counted<R>(&self, call: &Call, communicate: impl FnOnce() -> Result<R>) -> Result<R> {
        let Membership { recorder, meter, .. } = self.transport.membership();
        let start = Instant::now();
        recorder.begin(call, start);
        let result = communicate();
        let time = start.elapsed();
        recorder.end(start + time, result.is_ok());
        meter.called(call, time);
        result
    }

    fn check_parts(&self, call: &Call, all: usize) -> Result<()> {
        if call.len.checked_mul(self.size()) == Some(all) {
            return Ok(());
        }
        let why = format!(
            "the slice for all ranks must hold {} ranks x {} elements, but holds {all}",
            self.size(),
            call.len
        );
        Err(CommError::invalid(call, why))
    }
}
