//! Data parallelism (DDP): every rank holds the whole model and its own slice of the batch. The
//! ranks average their gradients once per step, so that their models stay equal.
//!
//! Cost: an all-reduce of all gradients per step, in buckets. Each of n ranks sends 2(n-1)/n times
//! the gradients' bytes. A bucket is a range of the flat gradient buffer. The backward pass runs
//! from the model's end to its start. A bucket's all-reduce starts as soon as the pass has
//! completed the bucket. The rank then waits only for communication that the rest of the backward
//! pass did not hide.

use super::buckets::{Averaging, BUCKET, Reducer, Reduction, Target, flat_ranges};
use super::{Averaged, Replicas};
use crate::comm::algorithms::{self, Algorithm};
use crate::comm::{self, Comm, Reduce};
use crate::tensor::{Listener, Params, Stored};
use anyhow::Result;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Keeps the replicas of a model equal on all ranks of a group.
///
/// [`Zero`](super::Zero) in stage 0 averages in the same way. `Ddp` is a second door to it for
/// teaching: lab02 and two exercises of lab03 write the loop themselves, and need only the
/// averaging, in three calls (`new`, `synchronise`, `finish`).
///
/// Two ranks with different samples get the same gradients:
///
/// ```
/// use shardlab::launch;
/// use shardlab::model::LinearStack;
/// use shardlab::parallel::Ddp;
///
/// let gradients = launch::run(2, |comm| {
///     let model = LinearStack::new(&[2, 3, 2])?;
///     model.params.allocate(comm.rank() as u64); // each rank has weights of its own
///     let ddp = Ddp::new(&model.params, &comm)?; // now all have rank 0's
///     let samples = [[0.1, 0.9], [0.8, 0.2]];
///     model.params.zero_gradients();
///     model.loss(&samples[comm.rank()])?.backward()?;
///     ddp.finish()?; // now all have the mean of both gradients
///     Ok(model.params.gradients().clone())
/// })?;
/// assert!(gradients[0].iter().any(|gradient| *gradient != 0.0));
/// assert_eq!(gradients[0], gradients[1]);
/// # anyhow::Ok(())
/// ```
pub struct Ddp {
    params: Arc<Params>,
    reducer: Arc<Reducer<f32>>,
    _listener: Listener,
}

impl Ddp {
    /// Gives every rank rank 0's parameters, and averages gradients from now on.
    ///
    /// # Errors
    /// If the broadcast fails: a rank has ended, or made a different call.
    pub fn new(params: &Arc<Params>, comm: &Comm) -> Result<Ddp> {
        comm.broadcast(&mut params.values_mut(), 0)?;
        let reducer = all_reducer(params, &comm.into(), BUCKET, true, None);
        Ok(Ddp {
            params: params.clone(),
            _listener: reducer.listen(params),
            reducer,
        })
    }

    /// Sets whether the backward pass continues while a bucket is averaged, which is the default.
    /// Otherwise it stops until the bucket has arrived. The result is the same.
    pub fn overlap(&self, overlap: bool) {
        self.reducer.step().overlap = overlap;
    }

    /// The elements of each bucket, in the order in which a backward pass completes them.
    pub fn buckets(&self) -> Vec<usize> {
        self.reducer.step().sizes()
    }

    /// Tells whether the next backward pass is the step's last one for the parameters that it
    /// reaches. Earlier passes do not communicate: averaging is linear, so the sum over micro-steps
    /// is averaged once.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.reducer.synchronise(last_micro_step);
    }

    /// Waits until every gradient is averaged. Call it after the last backward pass of a step.
    /// Returns the time of each bucket's all-reduce, in the order of the backward pass.
    ///
    /// # Errors
    /// If a collective failed, if a parameter got no gradient in this step, or got one twice.
    pub fn finish(&self) -> Result<Vec<Averaged>> {
        self.reducer.finish(&self.params)
    }
}

/// Averages each bucket in the model's flat gradient buffer, on every rank. Buckets have at least
/// `elements` elements, except the last one of a parameter group. With an `algorithm`, they are
/// averaged by sends and receives in its rounds, while the backward pass waits: the sums have
/// another order than the transport's.
pub(super) fn all_reducer<T: Stored>(
    params: &Params,
    replicas: &Replicas,
    elements: usize,
    overlap: bool,
    algorithm: Option<Algorithm>,
) -> Arc<Reducer<T>> {
    let (ranges, slots) = flat_ranges(params, elements);
    let sizes = ranges.iter().map(Range::len).collect();
    let groups = &params.layout().groups;
    let comm = |range: &Range<usize>| {
        let group = groups.iter().find(|group| group.range.contains(&range.start));
        replicas.of(group.is_some_and(|group| group.expert)).clone()
    };
    let comms = ranges.iter().map(comm).collect();
    let reduction = AllReduce { comms, ranges, algorithm };
    Reducer::new(sizes, slots, None, overlap, reduction)
}

/// All-reduces each bucket.
struct AllReduce {
    /// The ranks that average each bucket.
    comms: Vec<Comm>,
    /// Each bucket's range of the flat gradient buffer.
    ranges: Vec<Range<usize>>,
    /// `None`: the transport's own all-reduce.
    algorithm: Option<Algorithm>,
}

impl<T: Stored> Reduction<T> for AllReduce {
    // ANCHOR: bucket
    /// Averages a bucket whose gradients are complete on this rank.
    fn start(&self, params: &Params, step: &mut Averaging<T>, bucket: usize) -> comm::Result<()> {
        let AllReduce { comms, algorithm, .. } = self;
        let comm = &comms[bucket];
        let range = self.ranges[bucket].clone();
        let gradients = &mut params.stored_gradients::<T>()[range.clone()];
        if step.overlap && algorithm.is_none() && comm.size() > 1 {
            let mut copy = step.spare.pop().unwrap_or_default();
            copy.clear();
            copy.extend_from_slice(gradients);
            let pending = comm.start_all_reduce(copy, Reduce::Mean)?;
            step.in_flight.push(Target { bucket, range }, gradients.len(), pending);
        } else {
            let start = Instant::now();
            match algorithm {
                Some(algorithm) => {
                    algorithms::all_reduce(comm, gradients, Reduce::Mean, *algorithm)?
                }
                None => comm.all_reduce(gradients, Reduce::Mean)?,
            }
            let end = Instant::now();
            step.averaged.push(Averaged { start, end, waited: (start, end) });
        }
        Ok(())
    }
    // ANCHOR_END: bucket

    fn store(
        &self,
        params: &Params,
        step: &mut Averaging<T>,
        target: Target,
        mean: Vec<T>,
        _seen: Averaged,
    ) {
        params.stored_gradients::<T>()[target.range].copy_from_slice(&mean);
        step.spare.push(mean);
    }

    /// The vectors are kept for the next step, so storing early would free nothing.
    fn stores_early(&self) -> bool {
        false
    }
}
