//! ZeRO: data parallelism whose ranks do not all hold the same things N times (Rajbhandari et al., arXiv 1910.02054).
//!
//! Under [`Ddp`](super::Ddp) every rank holds all parameters, all gradients and all of the optimizer's state, although it
//! needs each only for a moment. ZeRO gives each rank a share, and brings the rest when it is needed:
//!
//! | stage | divided | a step's communication, of Ψ elements on n ranks |
//! |---|---|---|
//! | 0 | nothing: [`Ddp`](super::Ddp) | all-reduce of gradients: 2Ψ(n-1)/n sent by each rank |
//! | 1 | the optimizer's state | gradients reduced to their owners, parameters gathered: the same |
//! | 2 | and gradients | the same |
//! | 3 | and parameters | parameters gathered twice (forward, backward), gradients reduce-scattered: 3Ψ(n-1)/n |
//!
//! All stages take the same steps, to the bit where sums are added in rank order: a share is updated by the very
//! arithmetic that would update it as a part of the whole, and the global norm does not depend on how gradients are
//! divided ([`sharded_norm`](super::sharded_norm)).
//!
//! With gradient accumulation, stages 0 and 1 add up whole gradients locally and average once a step. Stages 2 and 3 cannot:
//! a rank that would add up gradients locally would hold them all. They average in every micro-step and add up shares
//! (DeepSpeed's do, too). That is another order of additions, so there stages 0 and 1 agree to the bit, and 2 and 3 do, and
//! the two pairs agree within rounding.
//!
//! Reading order: `mod.rs` (the one interface), `replicated.rs` and `reduce.rs` (stages 0 to 2), `units.rs`, `gather.rs` and
//! `sharded.rs` (stage 3, which PyTorch calls FSDP).

mod gather;
mod reduce;
mod replicated;
mod sharded;
mod units;

pub use crate::optim::Offload;
pub use units::Wrap;

use super::{Averaged, TensorParallel};
use crate::comm::{Comm, Reduce};
use crate::mesh::Axis;
use crate::optim::{AdamW, AdamWConfig, Begin, Fragment, State, clip_scale};
use crate::tensor::{Copies, Gather, Home, Numbers, Params, Precision, Spec, Stored};
use anyhow::Result;
use half::bf16;
use replicated::Replicated;
use sharded::FullySharded;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// How much is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Stage {
    /// Nothing: DDP.
    #[default]
    #[value(name = "0")]
    Zero,
    /// The optimizer's state.
    #[value(name = "1")]
    One,
    /// The optimizer's state and the gradients.
    #[value(name = "2")]
    Two,
    /// The optimizer's state, the gradients and the parameters.
    #[value(name = "3")]
    Three,
}

impl Stage {
    pub const ALL: [Stage; 4] = [Stage::Zero, Stage::One, Stage::Two, Stage::Three];

    pub fn number(self) -> usize {
        self as usize
    }
}

/// The settings, as DeepSpeed names them; sizes are in elements.
#[derive(Clone, Debug)]
pub struct ZeroConfig {
    pub stage: Stage,
    pub precision: Precision,
    pub adamw: AdamWConfig,
    /// Gradients that are reduced together, in stages 0 to 2. In stage 3, those of a unit are.
    pub reduce_bucket: usize,
    /// Parameters that may be on their way before they are needed, in stage 3; 0: none.
    pub prefetch_bucket: usize,
    /// Parameters up to this size are gathered once a step, and stay whole on every rank until its end, in stage 3.
    pub persistence_threshold: usize,
    /// The parameters that are gathered together, in stage 3.
    pub wrap: Wrap,
    /// A folder for the optimizer's state, and in stage 3 for parameters, if they are not in memory.
    pub offload: Option<Offload>,
    /// Whether the backward pass goes on while gradients are reduced.
    pub overlap: bool,
    /// Whether a rank clips by the norm of its own share alone, as it must not.
    pub local_norm: bool,
}

impl ZeroConfig {
    /// A stage with settings for models of a few megabytes.
    pub fn new(stage: Stage, precision: Precision, adamw: AdamWConfig) -> ZeroConfig {
        ZeroConfig {
            stage,
            precision,
            adamw,
            reduce_bucket: super::buckets::BUCKET,
            prefetch_bucket: 1 << 18,
            persistence_threshold: 1000,
            wrap: Wrap::Blocks,
            offload: None,
            overlap: true,
            local_norm: false,
        }
    }
}

/// Bytes that a rank holds, counted over the very buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub parameters: usize,
    pub gradients: usize,
    /// Moments, and the f32 master of parameters that are stored in bf16.
    pub optimizer: usize,
    /// Bytes of parameters and optimizer that are offloaded to files, and take no memory.
    pub parameters_file: usize,
    pub optimizer_file: usize,
    /// Temporary buffers: gathered units, gradients in flight.
    pub buffers: usize,
    /// The peak of a step's temporary buffers.
    pub peak_buffers: usize,
}

impl Held {
    pub fn total(&self) -> usize {
        self.parameters + self.gradients + self.optimizer + self.buffers
    }
}

/// Something that happened to a unit of stage 3, from when to when.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub unit: usize,
    pub what: What,
    pub start: Instant,
    pub end: Instant,
}

/// The things that can happen to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// All ranks' parts of its parameters were under way.
    Gather,
    /// This rank could do nothing but wait for them.
    Wait,
    /// Its parameters were whole here, for the forward pass.
    Forward,
    /// Its parameters were whole here, for the backward pass.
    Backward,
    /// Its gradients were under way to their owners.
    ReduceScatter,
    /// The optimizer updated all units' parts.
    Step,
}

/// Elements that a step communicates, over all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// Elements of whole parameters that were gathered.
    pub gathered: usize,
    /// Elements of whole gradients that were reduced.
    pub reduced: usize,
    pub bytes_each: usize,
}

/// A function of each parameter.
type Each<'a> = dyn FnMut(&Spec, &[f32]) + 'a;

/// A function of the state of each fragment.
type Visit<'a> = dyn FnMut(&Fragment, Range<usize>, State) + 'a;

/// One stage's mechanics; [`Zero`] documents each method.
trait Engine {
    fn begin(&mut self) -> Result<()>;
    fn synchronise(&self, last_micro_step: bool);
    fn finish(&mut self) -> Result<Vec<Averaged>>;
    /// Adds up, over the ranks of a tensor group, the gradients of parameters that each of them holds.
    fn add_copies(&mut self, group: &Comm) -> Result<()>;
    /// The norm of `numel` gradients, which are also sharded over the ranks of `groups`.
    fn norm<'a>(&'a self, groups: Vec<&'a Comm>, numel: usize) -> Result<f64>;
    fn update(&mut self, lr: f64, scale: f32) -> Result<()>;
    fn visit(&mut self, each: &mut Visit) -> Result<()>;
    /// Brings values that a rank has changed in its share to all ranks that hold them.
    fn spread(&mut self) -> Result<()> {
        Ok(())
    }
    fn optimizers(&mut self) -> &mut [AdamW];
    /// Lets layers find their parameters outside of a step, and no longer.
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn close(&mut self) {}
    /// Calls `each` with every parameter, whole and as f32.
    fn each(&mut self, each: &mut Each) -> Result<()>;
    fn held(&self) -> Held;
    fn volumes(&self) -> Volumes;
    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
    fn units(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The gradients of a share that count in the norm: not those of copies that another rank counts.
fn counted<'a, T>(share: &[Fragment], gradients: &'a [T]) -> Vec<&'a [T]> {
    if share.iter().all(|fragment| fragment.spec.copies.counts()) {
        return vec![gradients];
    }
    let counted = share.iter().filter(|fragment| fragment.spec.copies.counts());
    counted.map(|fragment| &gradients[fragment.start..fragment.start + fragment.elements.len()]).collect()
}

/// Adds up, over the ranks of a tensor group, the gradients of those parameters in a share that each of them holds.
fn add_copies<T: Stored>(group: &Comm, share: &[Fragment], gradients: &mut [T]) -> Result<()> {
    let is_copy = |fragment: &&Fragment| matches!(fragment.spec.copies, Copies::Same { axis: Axis::Tensor, .. });
    let held = |fragment: &Fragment| fragment.start..fragment.start + fragment.elements.len();
    let copies: Vec<Range<usize>> = share.iter().filter(is_copy).map(held).collect();
    let mut sums: Vec<T> = copies.iter().flat_map(|held| &gradients[held.clone()]).copied().collect();
    group.all_reduce(&mut sums, Reduce::Sum)?;
    let mut rest = &sums[..];
    for held in copies {
        let (sum, after) = rest.split_at(held.len());
        gradients[held].copy_from_slice(sum);
        rest = after;
    }
    Ok(())
}

/// Bytes of optimizers in memory, and in files.
fn state_bytes(optimizers: &[AdamW]) -> (usize, usize) {
    optimizers.iter().map(AdamW::bytes).fold((0, 0), |(memory, files), (m, f)| (memory + m, files + f))
}

/// A model in training, divided among ranks as its stage says: gradients, optimizer and what they communicate.
///
/// A step is: [`Zero::begin`]; for each micro-step the forward pass, [`Zero::synchronise`], the backward pass; then
/// [`Zero::finish`] and [`Zero::step`]: *finish, agree, update*. All ranks make the same calls.
pub struct Zero {
    engine: Box<dyn Engine>,
    params: Arc<Params>,
    stage: Stage,
    ranks: usize,
    /// If the model is sharded among ranks that are no replicas.
    tensor: Option<TensorParallel>,
    /// Elements of all ranks that hold this replica together, each counted once.
    numel: usize,
}

impl Zero {
    /// Takes over parameters that are allocated: rank 0's, on all ranks.
    pub fn new(params: &Arc<Params>, comm: &Comm, config: ZeroConfig) -> Result<Zero> {
        drop(params.whole()?);
        comm.broadcast(&mut params.values_mut(), 0)?;
        params.set_gradients(Home::Nowhere);
        let Home::Here(Numbers::F32(values)) = params.set_values(Home::Nowhere) else { unreachable!("they are whole") };
        Zero::begin_with(params, comm, config, &|spec, elements, out| {
            out.copy_from_slice(&values[spec.range()][elements]);
        })
    }

    /// Begins with what [`Params::allocate`] would make of a seed, rank 0's on all ranks, without ever having more of it than
    /// is held in training: each rank makes its own share. So a model is trained that no rank could hold whole.
    pub fn init(params: &Arc<Params>, comm: &Comm, config: ZeroConfig, seed: u64) -> Result<Zero> {
        let mut seed = [seed];
        comm.broadcast(&mut seed, 0)?;
        Zero::begin_with(params, comm, config, &|spec, elements, out| spec.initial(seed[0], elements, out))
    }

    fn begin_with(params: &Arc<Params>, comm: &Comm, config: ZeroConfig, begin: Begin) -> Result<Zero> {
        let engine: Box<dyn Engine> = match (config.stage, config.precision) {
            (Stage::Three, Precision::F32) => Box::new(FullySharded::<f32>::new(params, comm, &config, begin)?),
            (Stage::Three, Precision::Bf16) => Box::new(FullySharded::<bf16>::new(params, comm, &config, begin)?),
            (_, Precision::F32) => Box::new(Replicated::<f32>::new(params, comm, &config, begin)?),
            (_, Precision::Bf16) => Box::new(Replicated::<bf16>::new(params, comm, &config, begin)?),
        };
        let (stage, ranks, numel) = (config.stage, comm.size(), params.numel());
        Ok(Zero { engine, params: params.clone(), stage, ranks, tensor: None, numel })
    }

    /// For a model that `tensor` has built: each of its ranks is in a data group of its own, in which ZeRO shards that rank's
    /// part of the model. All of them call it.
    pub fn with_tensor(mut self, tensor: &TensorParallel) -> Result<Zero> {
        let counted = self.params.specs().iter().filter(|spec| spec.copies.counts());
        let mut numel = [counted.map(|spec| spec.numel() as u64).sum::<u64>()];
        tensor.group().all_reduce(&mut numel, Reduce::Sum)?;
        (self.numel, self.tensor) = (numel[0] as usize, Some(tensor.clone()));
        Ok(self)
    }

    /// Begins a step: gradients are zero, and from here to [`Zero::finish`] layers find their parameters.
    pub fn begin(&mut self) -> Result<()> {
        self.engine.begin()
    }

    /// Says, before a backward pass, whether it is the step's last one. Stages 0 and 1 communicate in that alone.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.engine.synchronise(last_micro_step);
    }

    /// To be called after the last backward pass of a step: waits until every gradient is averaged where it belongs. Returns
    /// when each part was, in the order of the backward pass.
    pub fn finish(&mut self) -> Result<Vec<Averaged>> {
        let averaged = self.engine.finish()?;
        if let Some(tensor) = self.tensor.as_ref().filter(|tensor| tensor.has_partial_gradients()) {
            self.engine.add_copies(tensor.group())?;
        }
        Ok(averaged)
    }

    /// The global norm of the averaged gradients: the same bits on all ranks, which so agree on whether it is finite. (In
    /// stage 0 replicas hold the same gradients, and need not ask.)
    pub fn norm(&self) -> Result<f64> {
        self.engine.norm(self.tensor.iter().map(TensorParallel::group).collect(), self.numel)
    }

    /// The optimizer's step with the averaged gradients times `scale`.
    pub fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        self.engine.update(lr, scale)
    }

    /// Clips the gradients to the global norm `clip` (0: no clipping) and takes the optimizer's step. Returns the norm before
    /// clipping. A norm that is not finite is refused on all ranks alike: neither weights nor moments change.
    pub fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let norm = self.norm()?;
        self.update(lr, clip_scale(norm, clip)?)?;
        Ok(norm)
    }

    /// Calls `each` with the optimizer's state of every fragment that this rank has, between steps: what a checkpoint writes.
    /// Fragments whose state is in files come in pieces. No rank waits for another one.
    pub fn fragments(&mut self, mut each: impl FnMut(&Fragment, Range<usize>, &State)) -> Result<()> {
        self.engine.visit(&mut |fragment, elements, state| each(fragment, elements, &state))
    }

    /// The model's parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Steps that the optimizer has taken.
    pub fn steps(&mut self) -> u64 {
        self.engine.optimizers().first().map_or(0, |adamw| adamw.steps())
    }

    /// Lets `each` replace the state of every fragment that this rank has, and continues after `steps` steps. All ranks call
    /// it, between steps.
    pub fn restore(&mut self, steps: u64, mut each: impl FnMut(&Fragment, Range<usize>, State)) -> Result<()> {
        self.engine.visit(&mut each)?;
        self.engine.optimizers().iter_mut().for_each(|adamw| adamw.set_steps(steps));
        self.engine.spread()
    }

    /// Runs `work` while every rank holds all parameters, as f32: for evaluation, samples. All ranks call it, between steps.
    pub fn whole<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(all) = self.gather()? else { return work() };
        let stored = self.params.set_values(all);
        let result = work();
        self.params.set_values(stored);
        result
    }

    /// All values as f32 in the flat layout, unless they are held so anyway.
    fn gather(&mut self) -> Result<Option<Home<dyn Gather>>> {
        let numel = self.params.numel();
        if self.params.values().len() == numel {
            return Ok(None);
        }
        let mut all = vec![0.0; numel];
        self.engine.each(&mut |spec, values| all[spec.range()].copy_from_slice(values))?;
        Ok(Some(Home::Here(Numbers::F32(all))))
    }

    /// Calls `each` with every parameter, whole and as f32, one after the other: for a checkpoint, a hash. No rank has more than
    /// a unit of them at a time. All ranks call it, between steps; the order is the stage's own.
    pub fn each(&mut self, mut each: impl FnMut(&Spec, &[f32])) -> Result<()> {
        self.engine.each(&mut each)
    }

    /// Runs `work`, which makes forward passes, with no more in memory than a step has: stage 3 gathers unit by unit. All ranks
    /// call it, between steps, and make the same passes: ranks that evaluate take equally many batches
    /// ([`evaluate`](crate::train::evaluate) sees to it), ranks that sample all write the same.
    pub fn passes<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.engine.open()?;
        let result = work();
        self.engine.close();
        result
    }

    /// Ends the training: every rank holds all parameters again, as f32.
    pub fn leave(mut self) -> Result<()> {
        if let Some(all) = self.gather()? {
            self.params.set_values(all);
        }
        Ok(())
    }

    /// Bytes that this rank holds now.
    pub fn held(&self) -> Held {
        self.engine.held()
    }

    /// Elements that the last step communicated, over all ranks. Padding is not counted.
    pub fn volumes(&self) -> Volumes {
        self.engine.volumes()
    }

    /// Bytes that each rank sends in such a step by the formula. A gather sends each rank's n-th part to the n-1 others, and
    /// so does a reduction; stage 0 does both with gradients, the other stages add what the norm takes.
    pub fn bytes_a_step(&self) -> f64 {
        let Volumes { gathered, reduced, bytes_each } = self.volumes();
        let share = (self.ranks as f64 - 1.0) / self.ranks as f64 * bytes_each as f64;
        match self.stage {
            Stage::Zero => 2.0 * share * reduced as f64,
            _ => share * (gathered + reduced) as f64 + self.norm_bytes() as f64,
        }
    }

    /// Bytes that rank 0 sends for one global norm: an all-reduce of one f32, of which it owns no part, and one of two f64, of
    /// which it owns one.
    pub fn norm_bytes(&self) -> usize {
        if self.ranks > 1 && self.stage > Stage::Zero { 20 } else { 0 }
    }

    /// Events since the previous call; only stage 3 has any.
    pub fn events(&mut self) -> Vec<Event> {
        self.engine.events()
    }

    /// The units' names, by number.
    pub fn units(&self) -> Vec<String> {
        self.engine.units()
    }
}

impl Drop for Zero {
    fn drop(&mut self) {
        self.params.forget_shards();
    }
}
