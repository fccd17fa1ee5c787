//! One training: a model that ranks divide by a [`Strategy`], and its steps.
//!
//! This is the one place that puts mesh, layers, stages, ZeRO and optimizer together and runs the
//! micro-batches. One rank, plain data parallelism and a mesh of three axes, with context ranks
//! among the data ranks, are the same code: a model that no pipeline divides is a pipeline of one
//! stage, whose schedule is one forward and one backward pass in turn.

use super::{Config, Diverged};
use crate::checkpoint;
use crate::comm::{Comm, Reduce};
use crate::data::{Batch, Sampler};
use crate::mesh::{Axis, Mesh};
use crate::model::{Balance, Build, Gpt, Pass, Plain, Tiled};
use crate::parallel::experts::balance_over;
use crate::parallel::pipeline::{Instruction, Stages, StepRecord};
use crate::parallel::strategy::{Offloaded, Strategy};
use crate::parallel::zero::Offload;
use crate::parallel::{
    Averaged, ContextParallel, ExpertParallel, Replicas, TensorParallel, Zero, ZeroConfig,
};
use crate::tensor::{Listener, Params, Spec, counted};
use anyhow::{Result, bail, ensure};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// One rank's part of a model, and of its training.
///
/// Four ranks train one GPT: two replicas, each cut in two by tensor parallelism. The optimizer's
/// state is divided between the replicas:
///
/// ```
/// use shardlab::data::Corpus;
/// use shardlab::launch;
/// use shardlab::parallel::Strategy;
/// use shardlab::train::{Config, Training};
///
/// let corpus = Corpus::embedded()?;
/// let strategy: Strategy = "dp=2,tp=2,zero=1".parse()?;
/// let config = Config::small(strategy.data, &corpus);
/// let losses = launch::run(strategy.ranks(), |comm| {
///     let mut training = Training::new(&config, &strategy, &comm)?;
///     let mut losses = Vec::new();
///     for step in 0..config.steps {
///         losses.push(training.step(&corpus.train, step)?.loss);
///     }
///     Ok(losses)
/// })?;
/// assert!(losses[0].last() < losses[0].first());
/// assert_eq!(losses[0], losses[1]); // tensor ranks share a replica and its batches
/// # anyhow::Ok(())
/// ```
pub struct Training {
    pub config: Config,
    pub strategy: Strategy,
    pub mesh: Mesh,
    /// The tensor group and its layers.
    pub tensor: TensorParallel,
    /// The ranks that share this rank's sequences.
    pub context: ContextParallel,
    /// The ranks that hold the same, and those that share experts.
    pub replicas: Replicas,
    /// This rank's layers.
    pub stages: Stages,
    pub zero: Zero,
    /// This rank's passes and messages, in order.
    pub program: Vec<Instruction>,
    /// The number of this rank's replica, whose batches it draws.
    replica: usize,
    /// The whole model, where the strategy cuts it, from the first time that it is put together.
    whole: Option<Gpt>,
    _listener: Option<Listener>,
}

/// A micro-batch that a rank is about to draw.
#[derive(Clone, Copy)]
pub struct MicroBatch<'a> {
    /// This replica's sampler.
    pub sampler: Sampler,
    pub text: &'a [u32],
    pub step: usize,
    /// Counted from 0 in the step.
    pub number: usize,
}

impl MicroBatch<'_> {
    pub fn draw(&self) -> Batch {
        self.sampler.batch(self.text, self.step, self.number)
    }
}

/// What a lab watches in a step, or changes on purpose. Its methods change nothing by themselves.
pub trait Observer {
    /// Returns the batch to train on. Where targets do not count
    /// ([`IGNORED`](crate::tensor::IGNORED)), its documents say so on every rank.
    fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
        micro_batch.draw()
    }

    /// Looks at gradients that are averaged, before they are used.
    ///
    /// # Errors
    /// Ends the step.
    fn averaged(&mut self, training: &mut Training) -> Result<()> {
        let _ = training;
        Ok(())
    }
}

/// Watches nothing.
impl Observer for () {}

/// A step that was taken.
pub struct TakenStep {
    /// The mean over the micro-batches of this rank's replica, in nats per token, on every rank.
    /// Where replicas count different tokens, each is weighted by its own, and the mean over all
    /// replicas is the job's.
    pub loss: f64,
    /// The norm of all gradients on all ranks, before clipping.
    pub grad_norm: f64,
    /// The learning rate.
    pub lr: f64,
    pub computed: ComputedStep,
}

/// A step whose gradients are averaged. An update may follow.
pub struct ComputedStep {
    /// Passes and messages, with their times.
    pub ran: StepRecord,
    /// The time of each collective on gradients, in the order of the backward pass.
    pub averaged: Vec<Averaged>,
    /// What watched the routers in each micro-batch, if the model has experts: those of the layers
    /// that are here.
    pub balances: Vec<Arc<Balance>>,
    pub times: StepTimes,
}

/// The moments of a step on this rank.
#[derive(Clone, Copy, Debug)]
pub struct StepTimes {
    pub begun: Instant,
    /// All micro-batches are drawn.
    pub drawn: Instant,
    /// All forward and backward passes are done.
    pub passed: Instant,
    /// All gradients are averaged.
    pub averaged: Instant,
    /// The parameters are updated; without an update, as `averaged`.
    pub updated: Instant,
}

/// The layers that a training makes in place of its strategy's.
type Layers<'a> = dyn FnOnce(&TensorParallel) -> Box<dyn Build> + 'a;

/// The values with which a training begins, as
/// [`Zero::begin_with`](crate::parallel::Zero::begin_with) takes them.
type Values<'a> = dyn Fn(&Spec, Range<usize>, &mut [f32]) + 'a;

/// Registers a listener to the parameters' gradients.
type Listen<'a> = dyn FnOnce(&Arc<Params>) -> Listener + 'a;

/// A training that has not begun: what differs from the usual one.
///
/// ```
/// use shardlab::data::Corpus;
/// use shardlab::parallel::zero::{Stage, ZeroConfig};
/// use shardlab::parallel::Strategy;
/// use shardlab::train::{Config, Setup};
///
/// let corpus = Corpus::embedded()?;
/// let config = Config::small(1, &corpus);
/// let alone = shardlab::comm::Comm::alone();
/// let zero = ZeroConfig { overlap: false, ..config.zero(Stage::Ddp) };
/// let mut training = Setup::new(&config, &Strategy::default()).zero(zero).begin(&alone)?;
/// assert!(training.step(&corpus.train, 0)?.loss > 0.0);
/// # anyhow::Ok(())
/// ```
pub struct Setup<'a> {
    config: &'a Config,
    strategy: Strategy,
    zero: ZeroConfig,
    init_from: Option<&'a Path>,
    values: Option<Box<Values<'a>>>,
    layers: Option<Box<Layers<'a>>>,
    listen: Option<Box<Listen<'a>>>,
}

impl<'a> Setup<'a> {
    /// A training that begins with random weights.
    pub fn new(config: &'a Config, strategy: &Strategy) -> Setup<'a> {
        Setup {
            config,
            strategy: *strategy,
            zero: config.zero(strategy.zero),
            init_from: None,
            values: None,
            layers: None,
            listen: None,
        }
    }

    /// ZeRO's settings: buckets, where state is offloaded to. The stage is the strategy's, and the
    /// types of what is stored are the run's.
    pub fn zero(mut self, zero: ZeroConfig) -> Setup<'a> {
        let ZeroConfig { stage, precision, reduce, .. } = self.zero;
        self.zero = ZeroConfig { stage, precision, reduce, ..zero };
        self
    }

    /// Begins with the weights of an earlier run's folder, if there is one.
    pub fn init_from(mut self, folder: Option<&'a Path>) -> Setup<'a> {
        self.init_from = folder;
        self
    }

    /// Begins with values that each rank writes for its own slices.
    pub fn values(mut self, values: impl Fn(&Spec, Range<usize>, &mut [f32]) + 'a) -> Setup<'a> {
        self.values = Some(Box::new(values));
        self
    }

    /// Makes the layers in another way than the strategy: `layers` gets the tensor group.
    pub fn layers(
        mut self,
        layers: impl FnOnce(&TensorParallel) -> Box<dyn Build> + 'a,
    ) -> Setup<'a> {
        self.layers = Some(Box::new(layers));
        self
    }

    /// Listens to each gradient before ranks average it, as long as the training lives.
    pub fn listen(mut self, listen: impl FnOnce(&Arc<Params>) -> Listener + 'a) -> Setup<'a> {
        self.listen = Some(Box::new(listen));
        self
    }

    /// Begins the training on one of `comm`'s ranks. All of them call it.
    ///
    /// # Errors
    /// If the strategy cannot divide this model or these ranks, or the trainer does not run it; if
    /// it is to begin with both a folder's weights and other values; if weights cannot be read, or
    /// a collective fails.
    pub fn begin(self, comm: &Comm) -> Result<Training> {
        let Setup { config, strategy, zero, init_from, values, layers, listen } = self;
        strategy.check(&config.shape)?;
        strategy.ensure_trainable()?;
        ensure!(
            config.ranks == strategy.data,
            "the settings are for {} data ranks, and the strategy has {}",
            config.ranks,
            strategy.data
        );
        let config = &config.under(&strategy); // its micro-batches are this training's

        // A rank has one place on each axis, and a group of ranks along each.
        let mesh = Mesh::new(comm, strategy.layout())?;
        let pipeline = mesh.group(Axis::Pipeline);
        let data = mesh.group(Axis::Data);

        // Context ranks draw the same sequences; for all that concerns weights they are data ranks.
        let replica = mesh.at.data / strategy.context;
        let context = data.split(replica as u64, 0)?.named("context");
        let context = ContextParallel::new(context, strategy.exchange, strategy.slicing);

        // Among data and context ranks neighbours share the experts, or shard one replica.
        let replicas = match strategy.replicas {
            1 => Replicas::sharing_experts(data, strategy.expert)?,
            _ => Replicas::sharding_in_groups(data, strategy.shard_ranks())?,
        };

        // Tensor ranks cut every matrix; pipeline ranks divide the layers that are made of them.
        let group = mesh.group(Axis::Tensor).clone();
        let mut tensor = TensorParallel::new(group).pad_vocabulary_to(strategy.vocabulary_multiple);
        if strategy.sequence && strategy.tensor > 1 {
            tensor = tensor.sequence_parallel();
        }
        let mut build: Box<dyn Build> = match layers {
            Some(layers) => layers(&tensor),
            None if strategy.tensor > 1 => Box::new(tensor.clone()),
            None if strategy.tiles > 1 => Box::new(Tiled(strategy.tiles)),
            None => Box::new(Plain),
        };
        if let Some(experts) = replicas.experts() {
            let experts = ExpertParallel::new(experts.clone()).overlap(zero.overlap);
            build = Box::new(experts.around(build));
        }
        let micro_batches = strategy.pipeline(config.grad_accum);
        let mut stages =
            Stages::new(micro_batches, pipeline, &config.shape, strategy.partition, &*build)?;
        for chunk in &mut stages.chunks {
            chunk.recompute(strategy.recompute.blocks());
        }
        stages.experts = config.shape.experts.map_or(0, |experts| experts.count);

        // Data ranks hold the same slices of the same layers, and shard their state.
        let params = stages.chunks[0].params.clone();
        let listener = listen.map(|listen| listen(&params)); // before those that average
        // The settings may name a folder; the strategy alone means the host's memory.
        let host = (strategy.offload != Offloaded::None).then_some(Offload::Host);
        let zero = ZeroConfig { offload: zero.offload.or(host), ..zero };
        let zero = match (values, init_from) {
            (Some(_), Some(_)) => bail!(
                "a training begins with given values or with a folder's weights, not with both"
            ),
            (Some(values), None) => Zero::begin_with(&params, &replicas, zero, &*values)?,
            (None, Some(folder)) => {
                params.allocate(config.seed);
                if data.rank() < strategy.expert {
                    checkpoint::load(folder, &params)?;
                }
                Zero::new(&params, &replicas, zero)?
            }
            (None, None) => Zero::init(&params, &replicas, zero, config.seed)?,
        };
        // Where the axes meet: one norm of all gradients, and the tied table of both ends.
        let zero = zero.with_tensor(&tensor)?.with_pipeline(pipeline)?;

        let order = strategy.schedule().order(&micro_batches, pipeline.rank());
        Ok(Training {
            config: config.clone(),
            strategy,
            program: micro_batches.with_messages(pipeline.rank(), &order),
            replica,
            mesh,
            tensor,
            context,
            replicas,
            stages,
            zero,
            whole: None,
            _listener: listener,
        })
    }
}

impl Training {
    /// The training of `config` under a strategy, with random weights.
    ///
    /// # Errors
    /// Those of [`Setup::begin`].
    pub fn new(config: &Config, strategy: &Strategy, comm: &Comm) -> Result<Training> {
        Setup::new(config, strategy).begin(comm)
    }

    /// Takes step number `step`, from 0, on `text`. All ranks call it.
    ///
    /// # Errors
    /// [`Diverged`] on all ranks, if the norm is not finite: then nothing changes. If a pass, a
    /// message or a collective fails.
    pub fn step(&mut self, text: &[u32], step: usize) -> Result<TakenStep> {
        self.step_with(text, step, &mut ())
    }

    // ANCHOR: step
    /// Takes one step, which `observer` watches.
    ///
    /// # Errors
    /// Those of [`Training::step`], and the observer's.
    pub fn step_with(
        &mut self,
        text: &[u32],
        step: usize,
        observer: &mut dyn Observer,
    ) -> Result<TakenStep> {
        let begun = Instant::now();
        let micro_batches = self.draw(text, step, observer)?; // this replica's own sequences
        let mut computed = self.forward_backward(begun, &micro_batches)?;
        observer.averaged(self)?;
        // One norm of all gradients, so all ranks clip alike. Then each updates what it holds.
        let grad_norm = self.update(step)?;
        computed.times.updated = Instant::now();
        let loss = self.loss(&computed.ran)?;
        let lr = self.config.schedule.at(step);
        Ok(TakenStep { loss, grad_norm, lr, computed })
    }

    /// Adds up the gradients of a step that began at `begun`, and averages them.
    ///
    /// # Errors
    /// Those of [`Training::passes`] and [`Training::average`].
    pub fn forward_backward(
        &mut self,
        begun: Instant,
        micro_batches: &[(Batch, Pass)],
    ) -> Result<ComputedStep> {
        let drawn = Instant::now();
        // The last backward pass begins to average each bucket of gradients that is complete.
        let ran = self.passes(micro_batches)?;
        let passed = Instant::now();
        let averages = self.average()?; // waits: now each rank has the mean of what it updates
        let averaged = Instant::now();
        let times = StepTimes { begun, drawn, passed, averaged, updated: averaged };
        let balances = micro_batches.iter().filter_map(|(_, pass)| pass.balance.clone()).collect();
        Ok(ComputedStep { ran, averaged: averages, balances, times })
    }
    // ANCHOR_END: step

    /// Draws the batches of `step`'s micro-batches, with this rank's passes over them. All ranks
    /// call it.
    ///
    /// # Errors
    /// Those of [`Training::with_passes`].
    pub fn draw(
        &self,
        text: &[u32],
        step: usize,
        observer: &mut dyn Observer,
    ) -> Result<Vec<(Batch, Pass)>> {
        let sampler = self.sampler();
        let draw = |number| observer.batch(MicroBatch { sampler, text, step, number });
        self.with_passes(step, (0..self.micro_batches()).map(draw).collect())
    }

    /// The sampler of this rank's replica.
    pub fn sampler(&self) -> Sampler {
        self.config.sampler(self.replica)
    }

    /// This rank's slices of the batches of `step`, and its passes over them: their dropout, and
    /// their weights in the step's mean. All ranks call it.
    ///
    /// # Errors
    /// If targets do not count in a batch without documents, or the sum of the weights over the
    /// ranks fails.
    pub fn with_passes(&self, step: usize, batches: Vec<Batch>) -> Result<Vec<(Batch, Pass)>> {
        let mut micro_batches = Vec::new();
        for batch in batches {
            let pass = self.config.pass(step, &batch.sequences);
            let (batch, pass) = self.context.share(batch, pass);
            let pass = self.tensor.pass(pass, batch.length);
            let pass = Pass { balance: self.balance(), ..pass };
            micro_batches.push((batch, pass));
        }
        self.weigh(&mut micro_batches)?;
        Ok(micro_batches)
    }

    /// Watches the routers of one pass, if the model has such.
    fn balance(&self) -> Option<Arc<Balance>> {
        let Config { shape, auxiliary, .. } = &self.config;
        shape.experts?;
        Some(if auxiliary.over_ranks {
            balance_over(self.replicas.all(), *auxiliary)
        } else {
            Balance::new(*auxiliary)
        })
    }

    /// Gives each pass its part of the step's tokens as its weight, where parts can differ: among
    /// ranks that share sequences, and where packed documents end without a target.
    fn weigh(&self, micro_batches: &mut [(Batch, Pass)]) -> Result<()> {
        let tokens: Vec<usize> =
            micro_batches.iter().map(|(batch, _)| counted(&batch.targets)).collect();
        let packed = micro_batches.iter().any(|(batch, _)| !batch.documents.is_empty());
        if self.strategy.context == 1 && !packed {
            // Other ranks do not know of targets that are left out here, and would not join a sum.
            let all = micro_batches.iter().map(|(batch, _)| batch.targets.len());
            ensure!(
                tokens.iter().copied().eq(all),
                "targets do not count in a batch that has no documents: its loss would weigh as \
                 much as one of all targets; give every rank's batch its documents"
            );
            return Ok(());
        }
        let ranks = self.mesh.group(Axis::Data);
        let own = tokens.iter().sum::<usize>() as u64;
        let all = ranks.labelled("tokens that count").reduced(own, Reduce::Sum)?;
        // The mean over ranks and micro-batches is to be the mean over all tokens.
        let parts = (ranks.size() * micro_batches.len()) as f64;
        for ((_, pass), tokens) in micro_batches.iter_mut().zip(tokens) {
            pass.weight = Some(tokens as f64 * parts / all.max(1) as f64);
        }
        Ok(())
    }

    /// Micro-batches per replica and step.
    pub fn micro_batches(&self) -> usize {
        self.strategy.micro_batches.unwrap_or(self.config.grad_accum)
    }

    /// Makes the forward and backward passes over all micro-batches. Gradients add up, beginning
    /// with zero; the last pass begins to average them.
    ///
    /// # Errors
    /// If a pass or a message fails.
    pub fn passes(&mut self, micro_batches: &[(Batch, Pass)]) -> Result<StepRecord> {
        self.zero.begin()?;
        let activations = self.activations(micro_batches);
        self.stages.step(&self.program, micro_batches, activations, &self.zero)
    }

    /// The shape of what one stage sends to the next: [sequences, length, width].
    pub fn activations(&self, micro_batches: &[(Batch, Pass)]) -> [usize; 3] {
        let Some((batch, _)) = micro_batches.first() else {
            return [0; 3];
        };
        let ranks = self.tensor.group().size();
        let sequence = self.strategy.sequence && ranks > 1;
        let length = batch.length / if sequence { ranks } else { 1 };
        [batch.sequences.len(), length, self.config.shape.embd]
    }

    /// Waits until all gradients are averaged. Returns the time of each collective.
    ///
    /// # Errors
    /// If a collective failed, or a parameter got no gradient.
    pub fn average(&mut self) -> Result<Vec<Averaged>> {
        self.zero.finish()
    }

    /// Clips the averaged gradients and updates the parameters with the learning rate of `step`.
    /// Returns the norm of all gradients on all ranks, before clipping.
    ///
    /// # Errors
    /// [`Diverged`] on all ranks, if the norm is not finite: then nothing changes. If a collective
    /// fails.
    pub fn update(&mut self, step: usize) -> Result<f64> {
        self.zero
            .step(self.config.schedule.at(step), self.config.clip)
            .map_err(|error| Diverged::at(step + 1, error))
    }

    /// The mean loss over the micro-batches of this rank's replica, on every rank of it.
    /// All of them call it.
    ///
    /// # Errors
    /// If the broadcast fails.
    pub fn loss(&self, ran: &StepRecord) -> Result<f64> {
        let count = ran.losses.len().max(1) as f64;
        let mut loss = [ran.losses.iter().sum::<f64>() / count];
        let ranks = self.stages.group();
        if ranks.size() > 1 {
            ranks.broadcast(&mut loss, ranks.size() - 1)?; // the last stage has computed it
        }
        let shared = self.context.group();
        if shared.size() > 1 {
            shared.labelled("loss").all_reduce(&mut loss, Reduce::Mean)?;
        }
        Ok(loss[0])
    }

    /// Runs `work`, such as an evaluation, with the whole model, which every rank holds in f32
    /// meanwhile; where the strategy cuts the model, it stays until the training ends. All ranks
    /// call it, between steps.
    ///
    /// # Errors
    /// If parameters cannot be gathered, and those of `work`.
    pub fn whole<R>(&mut self, work: impl FnOnce(&Gpt) -> Result<R>) -> Result<R> {
        let Strategy { tensor, pipeline, expert, .. } = self.strategy;
        if tensor == 1 && pipeline == 1 && expert == 1 {
            let Training { zero, stages, .. } = self;
            return zero.whole(|| work(&stages.chunks[0]));
        }
        let whole = match self.whole.take() {
            Some(whole) => whole,
            None => {
                let whole = Gpt::new(&self.config.shape)?;
                whole.params.allocate(self.config.seed);
                whole
            }
        };
        let groups = [self.tensor.group(), self.stages.group()];
        let experts = self.replicas.experts();
        let params = &self.stages.chunks[0].params;
        self.zero
            .whole(|| Ok(crate::parallel::unshard(&groups, experts, params, &whole.params)?))?;
        work(self.whole.insert(whole))
    }

    /// This run, as its checkpoints record it: a run that continues from one must be the same.
    pub fn job(&self, text: &[u32]) -> checkpoint::Job {
        self.config.job(&self.strategy, text)
    }

    /// Ends the training. Every rank then holds all parameters of its own layers, in f32.
    ///
    /// # Errors
    /// If parameters cannot be gathered.
    pub fn leave(self) -> Result<Stages> {
        self.zero.leave()?;
        Ok(self.stages)
    }
}

impl Config {
    /// These settings under a strategy: with its replicas, and its micro-batches where it names
    /// them.
    pub fn under(&self, strategy: &Strategy) -> Config {
        Config {
            ranks: strategy.data,
            batch: strategy.micro_batch.unwrap_or(self.batch),
            grad_accum: strategy.micro_batches.unwrap_or(self.grad_accum),
            ..self.clone()
        }
    }

    /// A run of these settings under a strategy on `text`, as its checkpoints record it.
    pub fn job(&self, strategy: &Strategy, text: &[u32]) -> checkpoint::Job {
        checkpoint::Job {
            shape: self.shape,
            seed: self.seed,
            ranks: strategy.ranks(),
            strategy: Some(*strategy),
            settings: self.settings(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Corpus;
    use crate::launch;
    use crate::tensor::IGNORED;

    /// Ends documents at position 3, and leaves half of one rank's targets out.
    struct Packed {
        documents: bool,
        few: bool,
    }

    impl Observer for Packed {
        fn batch(&mut self, micro_batch: MicroBatch) -> Batch {
            let mut batch = micro_batch.draw();
            let left_out = if self.few { batch.targets.len() / 2 } else { 0 };
            batch.targets[..left_out].fill(IGNORED);
            if self.documents {
                batch.documents = vec![vec![3]; batch.sequences.len()].into();
            }
            batch
        }
    }

    #[test]
    fn packed_batches_weigh_as_much_as_they_have_targets() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config::small(2, &corpus);
        let weights = |documents: bool, few: bool| {
            let weights = launch::run(2, |comm| {
                let strategy = Strategy { data: 2, ..Strategy::SINGLE };
                let training = Training::new(&config, &strategy, &comm)?;
                let mut packed = Packed { documents, few: few && comm.rank() == 0 };
                let passes = training.draw(&corpus.train, 0, &mut packed)?;
                Ok(passes.iter().map(|(_, pass)| pass.weight).collect::<Vec<_>>())
            });
            weights.map(|weights| weights.concat()).map_err(|error| format!("{error:#}"))
        };
        let packed = weights(true, true).unwrap();
        assert_eq!(
            [packed.first(), packed.last()],
            [Some(&Some(2.0 / 3.0)), Some(&Some(4.0 / 3.0))]
        );
        let whole = weights(false, false).unwrap();
        assert!(whole.iter().all(Option::is_none), "whole sequences weigh alike");
        let error = weights(false, true).unwrap_err();
        assert!(error.contains("give every rank's batch its documents"), "{error}");
    }

    #[test]
    fn micro_batches_are_the_strategys_where_it_names_them() {
        let corpus = Corpus::embedded().unwrap();
        let config = Config::small(1, &corpus);
        let strategy = "dp=1,mb=2,m=3".parse().unwrap();
        let training = Training::new(&config, &strategy, &Comm::alone()).unwrap();
        let passes = training.draw(&corpus.train, 0, &mut ()).unwrap();
        let sizes: Vec<usize> = passes.iter().map(|(batch, _)| batch.sequences.len()).collect();
        assert_eq!(sizes, [2; 3]);
        assert_eq!((training.config.batch, training.config.grad_accum), (2, 3));
    }

    #[test]
    fn the_step_that_diverges_is_named_as_people_count() {
        let corpus = Corpus::embedded().unwrap();
        let mut config = Config::small(1, &corpus);
        config.schedule.lr = 1e30;
        let mut training = Training::new(&config, &Strategy::SINGLE, &Comm::alone()).unwrap();
        training.step(&corpus.train, 0).unwrap();
        let error = training.step(&corpus.train, 1).err().unwrap();
        assert_eq!(error.downcast::<Diverged>().unwrap().step, 2);
    }
}
