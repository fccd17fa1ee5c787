//! ZeRO: data parallelism that shards a model's state among ranks (Rajbhandari et al.,
//! arXiv 1910.02054).
//!
//! Under [`Ddp`](super::Ddp) every rank holds all parameters, all gradients and all of the
//! optimizer's state, although it needs each of them only briefly. ZeRO gives each rank a shard,
//! and communicates the rest when it is needed:
//!
//! | stage | sharded | communication per step: elements that each of n ranks sends, for Ψ parameters |
//! |---|---|---|
//! | 0 | nothing: [`Ddp`](super::Ddp) | all-reduce of gradients: 2Ψ(n-1)/n |
//! | 1 | the optimizer's state | gradients reduced to their owners, parameters gathered: 2Ψ(n-1)/n |
//! | 2 | optimizer and gradients | the same as stage 1: 2Ψ(n-1)/n |
//! | 3 | optimizer, gradients and parameters | parameters gathered twice (forward, backward), gradients reduce-scattered: 3Ψ(n-1)/n |
//!
//! All stages take the same steps. The steps are bitwise equal if sums are added in rank order:
//! updating a shard uses the same arithmetic as updating the whole, and the global norm does not
//! depend on how gradients are sharded ([`sharded_norm`](super::sharded_norm)).
//!
//! With gradient accumulation, stages 0 and 1 add up whole gradients locally and average once per
//! step. Stages 2 and 3 cannot, because a rank that adds up gradients locally holds all of them.
//! Like DeepSpeed's, they average in every micro-step and add up shards. The order of additions is
//! then different. So stages 0 and 1 agree bitwise, stages 2 and 3 agree bitwise, and the two pairs
//! agree within rounding.
//!
//! Where data ranks share experts ([`Replicas`]), fewer of them hold the same expert: n is theirs
//! for it, and its gradient is divided as any other.
//!
//! Under HSDP n is the ranks of one group. Once per step, when a shard's gradients of all
//! micro-steps have added up, the ranks that hold it, one of each group, all-reduce them: with r
//! groups each sends 2(r-1)/r of its shard, Ψ/n. Stages 1 and 2 do the same with their shards
//! (Megatron-LM's `--num-distributed-optimizer-instances`). Nothing hides this all-reduce here;
//! PyTorch's FSDP2 begins with it during the last backward pass.
//!
//! Reading order: `config.rs` (the choices), `mod.rs` (the one interface), `engine.rs` (what
//! differs between stages), `division.rs`, `replicated.rs` and `reduce.rs` (stages 0 to 2),
//! `units.rs`, `gather.rs` and `sharded.rs` (stage 3, which PyTorch calls FSDP), `account.rs` (what
//! it says of itself), `mistake.rs` (what labs do wrong).

mod account;
mod config;
mod division;
mod engine;
mod gather;
mod mistake;
mod reduce;
mod replicated;
mod sharded;
mod units;

pub use crate::optim::{Offload, OffloadFolder};
pub use account::{Event, EventKind, MemoryUsage, Volumes};
pub use config::ZeroConfig;
pub use gather::Gatherer;
#[doc(hidden)]
pub use mistake::Mistake;
pub use shapes::strategy::Stage;
pub use units::{Unit, Wrap};

use super::{Averaged, Replicas, TensorParallel};
use crate::comm::{Comm, Reduce};
use crate::optim::{Fragment, InitialValues, State, clip_scale};
use crate::tensor::stored::by_precision;
use crate::tensor::{Copies, Numbers, Params, ShardedValues, Spec, Storage, Stored};
use anyhow::{Result, bail, ensure};
use engine::{StageEngine, copies};
use replicated::Replicated;
use sharded::FullySharded;
use std::ops::Range;
use std::sync::Arc;

/// A model in training whose state is sharded among ranks, according to its stage.
///
/// A step calls [`Zero::begin`]. Each micro-step makes a forward pass, calls [`Zero::synchronise`],
/// and makes a backward pass. Then come [`Zero::finish`] and [`Zero::step`]: *finish, agree,
/// update*. All ranks make the same calls.
///
/// Stage 3 holds half of the parameters on each of two ranks, and trains what stage 0 trains, bit
/// for bit:
///
/// ```
/// use shardlab::launch;
/// use shardlab::model::LinearStack;
/// use shardlab::optim::AdamWConfig;
/// use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
/// use shardlab::tensor::Precision;
///
/// let train = |stage| {
///     launch::run(2, |comm| {
///         let model = LinearStack::new(&[64, 64, 64])?;
///         let config = ZeroConfig::new(stage, Precision::F32, AdamWConfig::default());
///         let mut zero = Zero::init(&model.params, &comm, config, 1337)?;
///         let bytes = zero.memory().parameters;
///         zero.begin()?;
///         model.loss(&[0.1 + comm.rank() as f32; 64])?.backward()?;
///         zero.finish()?;
///         zero.step(1e-3, 1.0)?;
///         zero.leave()?; // every rank gets all parameters
///         Ok((bytes, model.params.values().clone()))
///     })
/// };
/// let zero = train(Stage::Ddp)?;
/// let three = train(Stage::Three)?;
/// assert_eq!(2 * three[0].0, zero[0].0);
/// assert_eq!(three[0].1, zero[0].1);
/// # anyhow::Ok(())
/// ```
pub struct Zero {
    engine: Box<dyn StageEngine>,
    params: Arc<Params>,
    config: ZeroConfig,
    /// The ranks that shard the state.
    replicas: Replicas,
    /// The builder of the model, if tensor parallelism shards it.
    tensor: Option<TensorParallel>,
    pipeline: Option<Ends>,
    /// Elements of the whole model. Each counts once, however many ranks hold it.
    numel: usize,
}

/// A pipeline's ranks, and its two ranks that have a copy of the tied parameters, if this rank is
/// one of them.
struct Ends {
    group: Comm,
    tied: Option<Comm>,
}

impl Zero {
    /// Shards parameters that are allocated. All ranks begin with rank 0's values.
    ///
    /// # Errors
    /// If `params` are not allocated in f32, if the broadcast fails, or an offload file cannot be
    /// made.
    pub fn new(
        params: &Arc<Params>,
        replicas: impl Into<Replicas>,
        config: ZeroConfig,
    ) -> Result<Zero> {
        let replicas = replicas.into();
        for group in &params.layout().groups {
            let values = &mut params.whole_mut()?[group.range.clone()];
            replicas.equal(group.expert).broadcast(values, 0)?;
        }
        params.set_gradients(Storage::Unallocated);
        let Storage::Local(Numbers::F32(values)) = params.set_values(Storage::Unallocated) else {
            unreachable!("they are whole")
        };
        Zero::begin_with(params, &replicas, config, &|spec, elements, out| {
            out.copy_from_slice(&values[spec.range()][elements]);
        })
    }

    /// Begins with the values that [`Params::allocate`] makes of rank 0's seed. Each rank makes
    /// only its own shard, and never needs more memory than in training. So ranks can train a model
    /// that none of them could hold whole.
    ///
    /// # Errors
    /// If the broadcast of the seed fails, or an offload file cannot be made.
    pub fn init(
        params: &Arc<Params>,
        replicas: impl Into<Replicas>,
        config: ZeroConfig,
        seed: u64,
    ) -> Result<Zero> {
        let replicas = replicas.into();
        let mut seed = [seed];
        replicas.all().broadcast(&mut seed, 0)?;
        Zero::begin_with(params, &replicas, config, &|spec, elements, out| {
            spec.initial(seed[0], elements, out)
        })
    }

    /// Begins with values that each rank writes for its own shard, such as those of a pretrained
    /// model's file.
    ///
    /// # Errors
    /// If an offload file cannot be made or written, or with Muon, if the model has experts.
    pub fn begin_with(
        params: &Arc<Params>,
        replicas: impl Into<Replicas>,
        config: ZeroConfig,
        begin: InitialValues,
    ) -> Result<Zero> {
        let replicas = &replicas.into();
        if config.muon.is_some() {
            ensure_whole_matrices(params.specs())?;
        }
        let engine = by_precision!(config.precision, V => {
            by_precision!(config.reduce, G => engine::<V, G>(params, replicas, &config, begin)?)
        });
        let counted = params.specs().iter().filter(|spec| spec.copies.counts());
        let parts = replicas.experts().map_or(1, Comm::size);
        let numel = counted
            .map(|spec| spec.numel() * if spec.whole.part.is_expert() { parts } else { 1 })
            .sum();
        Ok(Zero {
            engine,
            params: params.clone(),
            config,
            replicas: replicas.clone(),
            tensor: None,
            pipeline: None,
            numel,
        })
    }

    /// Trains a model that `tensor` has built. Each rank of the tensor group has its own data
    /// group, in which ZeRO shards that rank's slice of the model. All ranks of the tensor group
    /// call it.
    ///
    /// # Errors
    /// If the collective in the tensor group fails.
    pub fn with_tensor(mut self, tensor: &TensorParallel) -> Result<Zero> {
        self.count(tensor.group())?;
        self.tensor = Some(tensor.clone());
        Ok(self)
    }

    /// Trains one rank's stages of a model that the ranks of `group` share as a pipeline. Each
    /// stage has its own data group. All ranks of the pipeline call it, in stages 0 and 1: the
    /// gradients of a tied parameter must be whole until both ends have added theirs.
    ///
    /// # Errors
    /// With stage 2 or 3 on more than one rank, or if a collective in `group` fails.
    pub fn with_pipeline(mut self, group: &Comm) -> Result<Zero> {
        let whole_gradients = self.config.stage < Stage::Two || group.size() == 1;
        ensure!(
            whole_gradients,
            "a pipeline takes stages 0 and 1 of ZeRO, which keep whole gradients"
        );
        self.count(group)?;
        let has_copy = self
            .params
            .specs()
            .iter()
            .any(|spec| matches!(spec.copies, Copies::Tied { .. }));
        let tied = group.split(has_copy.into(), 0)?.named("tied");
        self.pipeline = Some(Ends { group: group.clone(), tied: has_copy.then_some(tied) });
        Ok(self)
    }

    /// Adds up the elements of all ranks of `group`.
    fn count(&mut self, group: &Comm) -> Result<()> {
        self.numel = group.reduced(self.numel as u64, Reduce::Sum)? as usize;
        Ok(())
    }

    /// Elements in this rank's shard of parameters that each rank of a tensor group holds.
    pub fn copies(&mut self) -> usize {
        self.engine.optimizers().iter().flat_map(copies).map(|range| range.len()).sum()
    }

    /// Begins a step: sets gradients to zero. Until [`Zero::finish`], layers find their parameters.
    ///
    /// # Errors
    /// If parameters that stage 3 keeps whole during a step cannot be gathered.
    pub fn begin(&mut self) -> Result<()> {
        self.engine.begin()
    }

    /// Tells whether the next backward pass is the step's last. Stages 0 and 1 communicate only in
    /// the last one.
    pub fn synchronise(&self, last_micro_step: bool) {
        self.engine.synchronise(last_micro_step);
    }

    /// Waits until every gradient is averaged and has reached its owner. Call it after the last
    /// backward pass of a step. Returns the time of each collective, in the order of the backward
    /// pass.
    ///
    /// # Errors
    /// If a collective failed, if a parameter got no gradient in this step, or got one twice.
    pub fn finish(&mut self) -> Result<Vec<Averaged>> {
        if let Some(ends) = self.pipeline.as_ref().and_then(|pipeline| pipeline.tied.as_ref()) {
            self.engine.add_tied(ends)?;
        }
        let averaged = self.engine.finish()?;
        if let Some(tensor) = self.tensor.as_ref().filter(|tensor| tensor.has_partial_gradients()) {
            self.engine.add_copies(tensor.group())?;
        }
        Ok(averaged)
    }

    /// The global norm of the averaged gradients. All ranks get the same bits, so they agree
    /// whether it is finite. (In stage 0 replicas hold the same gradients and need no
    /// communication.)
    ///
    /// # Errors
    /// If a collective fails. A norm that is not finite is no error here.
    pub fn norm(&self) -> Result<f64> {
        let tensor = self.tensor.iter().map(TensorParallel::group);
        let pipeline = self.pipeline.iter().map(|pipeline| &pipeline.group);
        let mut comms: Vec<&Comm> = tensor.chain(pipeline).collect();
        if self.config.stage > Stage::Ddp {
            comms.push(match self.config.mistake {
                Some(Mistake::NormOverAll) => self.replicas.all(),
                _ => self.replicas.once(),
            });
        } else {
            comms.extend(self.replicas.experts());
        }
        if self.config.mistake == Some(Mistake::LocalNorm) {
            comms.clear();
        }
        self.engine.norm(&comms, self.numel)
    }

    /// Takes the optimizer's step with the averaged gradients times `scale`.
    ///
    /// # Errors
    /// If updated parameters cannot be gathered, or state in files cannot be read or written.
    pub fn update(&mut self, lr: f64, scale: f32) -> Result<()> {
        let tensor = &self.tensor;
        self.engine.update(lr, scale, &|spec, slice| match tensor {
            Some(tensor) => tensor.gather(spec, slice),
            None => Ok(slice),
        })
    }

    /// Clips the gradients to the global norm `clip` (0: no clipping) and takes the optimizer's
    /// step. Returns the norm before clipping. All ranks refuse a norm that is not finite; then
    /// neither weights nor moments change.
    ///
    /// # Errors
    /// [`NotFinite`](crate::optim::NotFinite), on all ranks; and those of [`Zero::norm`] and
    /// [`Zero::update`].
    pub fn step(&mut self, lr: f64, clip: f64) -> Result<f64> {
        let norm = self.norm()?;
        self.update(lr, clip_scale(norm, clip)?)?;
        Ok(norm)
    }

    /// Calls `each` with the optimizer's state of each of this rank's fragments, between steps: a
    /// checkpoint writes it. If the state is in files, a fragment comes in chunks. No
    /// communication.
    ///
    /// # Errors
    /// If state in files cannot be read.
    pub fn fragments(
        &mut self,
        mut each: impl FnMut(&Fragment, Range<usize>, &State),
    ) -> Result<()> {
        self.engine
            .visit(&mut |fragment, elements, state| each(fragment, elements, &state))
    }

    /// The model's parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Whether Muon updates hidden matrices.
    pub fn has_muon(&self) -> bool {
        self.config.muon.is_some()
    }

    /// The number of steps that the optimizer has taken.
    pub fn steps(&mut self) -> u64 {
        self.engine.optimizers().first().map_or(0, |first| first.steps())
    }

    /// Calls `each` to replace the state of each of this rank's fragments, and continues after
    /// `steps` steps. All ranks call it, between steps.
    ///
    /// # Errors
    /// If state in files cannot be written, or a collective fails.
    pub fn restore(
        &mut self,
        steps: u64,
        mut each: impl FnMut(&Fragment, Range<usize>, State),
    ) -> Result<()> {
        self.engine.visit(&mut each)?;
        for optimizer in self.engine.optimizers() {
            optimizer.set_steps(steps);
        }
        self.engine.all_gather_values()
    }

    /// Runs `work`, such as an evaluation, while every rank holds all parameters in f32. All ranks
    /// call it, between steps.
    ///
    /// # Errors
    /// If parameters cannot be gathered, and those of `work`.
    pub fn whole<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let Some(all) = self.gather()? else {
            return work();
        };
        let stored = self.params.set_values(all);
        let result = work();
        self.params.set_values(stored);
        result
    }

    /// Gathers all values in f32, in the flat layout. `None` if this rank already holds them so.
    fn gather(&mut self) -> Result<Option<Storage<dyn ShardedValues>>> {
        let numel = self.params.numel();
        if self.params.whole().is_ok() {
            return Ok(None);
        }
        let mut all = vec![0.0; numel];
        self.engine
            .each(&mut |spec, values| all[spec.range()].copy_from_slice(values))?;
        Ok(Some(Storage::Local(Numbers::F32(all))))
    }

    /// Calls `each` with every parameter, whole and in f32, one after the other: for a checkpoint
    /// or a hash. No rank gathers more than a unit at a time. All ranks call it, between steps. The
    /// order depends on the stage.
    ///
    /// # Errors
    /// If parameters cannot be gathered.
    pub fn each(&mut self, mut each: impl FnMut(&Spec, &[f32])) -> Result<()> {
        self.engine.each(&mut each)
    }

    /// Runs `work`, which makes forward passes, with no more memory than a step needs: stage 3
    /// gathers unit by unit. All ranks call it, between steps, and make the same number of passes
    /// ([`evaluate`](crate::train::evaluate) does).
    ///
    /// # Errors
    /// If parameters cannot be gathered, and those of `work`.
    pub fn passes<R>(&mut self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.open()?;
        let result = work();
        self.close();
        result
    }

    /// Begins passes outside of a step, like [`Zero::passes`], for work that also needs this
    /// `Zero`. Ends with [`Zero::close`].
    ///
    /// # Errors
    /// If parameters that stay whole cannot be gathered.
    pub fn open(&mut self) -> Result<()> {
        self.engine.open()
    }

    /// Ends the passes that [`Zero::open`] began.
    pub fn close(&mut self) {
        self.engine.close();
    }

    /// Ends the training. Every rank then holds all parameters in f32.
    ///
    /// # Errors
    /// If parameters cannot be gathered.
    pub fn leave(mut self) -> Result<()> {
        if let Some(all) = self.gather()? {
            self.params.set_values(all);
        }
        Ok(())
    }
}

/// Refuses for Muon what is not a whole matrix of one owner.
fn ensure_whole_matrices(specs: &[Arc<Spec>]) -> Result<()> {
    let expert = specs.iter().find(|spec| spec.whole.part.is_expert());
    if let Some(Spec { name, .. }) = expert.map(Arc::as_ref) {
        bail!("Muon does not know experts here: {name}");
    }
    // A tile has its own name.
    let tile = specs
        .iter()
        .find(|spec| spec.is_hidden_matrix() && spec.name != spec.whole.name);
    if let Some(Spec { name, whole, .. }) = tile.map(Arc::as_ref) {
        bail!("Muon needs whole matrices, and {name} is a tile of {}", whole.name);
    }
    Ok(())
}

/// The mechanism of `config`'s stage, with values of type `V` and gradients of type `G`.
fn engine<V: Stored, G: Stored>(
    params: &Arc<Params>,
    replicas: &Replicas,
    config: &ZeroConfig,
    begin: InitialValues,
) -> Result<Box<dyn StageEngine>> {
    Ok(match config.stage {
        Stage::Three => Box::new(FullySharded::<V, G>::new(params, replicas, config, begin)?),
        _ => Box::new(Replicated::<V, G>::new(params, replicas, config, begin)?),
    })
}

impl Drop for Zero {
    fn drop(&mut self) {
        self.params.forget_shards();
    }
}
