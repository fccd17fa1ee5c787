//! A training whose routers are watched, with one mistake in it if asked for.

use super::broken::Break;
use super::broken_layers::BrokenLayers;
use super::routed::Routed;
use anyhow::Result;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::mesh::Axis;
use shardlab::model::{Balance, Load, Pass};
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{ExpertParallel, Strategy, ZeroConfig};
use shardlab::plan::{ModelShape, Part};
use shardlab::tensor::Params;
use shardlab::train::{Config, Setup, Training};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// What is trained, and the mistake that is made.
pub struct Job<'a> {
    pub config: &'a Config,
    pub broken: Option<Break>,
    pub text: &'a [u32],
    /// Whether ranks compute while tokens and gradients travel.
    pub overlap: bool,
}

/// A training that has begun.
pub struct Watched {
    pub training: Training,
    /// Copies that layers have counted for themselves, if a mistake makes them.
    counted: Arc<AtomicU64>,
}

/// A step, as all ranks know it.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Over all replicas.
    pub loss: f64,
    /// The balancing loss, without its coefficient.
    pub balancing: f64,
    /// By which gradients were clipped.
    pub norm: f64,
    /// Copies for each expert of each layer that has such.
    pub copies: Vec<Vec<u64>>,
    /// Of all ranks together; tensor ranks have the same choices, each of which counts.
    pub routed: Routed,
    /// Copies that capacities dropped, and those beyond the capacities by the loads of each rank.
    pub dropped: [u64; 2],
    /// Copies that were counted, and all that there are.
    pub counted: [u64; 2],
    /// Choices that ranks would have made otherwise than one rank, whose choices they had to make.
    pub others: u64,
    /// Bytes that all ranks sent to experts' ranks and back, counts included.
    pub sent: u64,
    /// Bytes that all ranks sent for the step.
    pub all_sent: u64,
    /// Of these, what averages of gradients, gathered parameters and norms have by formula.
    pub averages: f64,
    /// Of this rank.
    pub seconds: f64,
}

impl Job<'_> {
    /// Begins the training by a strategy, on all ranks of `world`.
    ///
    /// # Errors
    /// Those of [`Setup::begin`].
    pub fn begin(&self, strategy: &Strategy, world: &Comm) -> Result<Watched> {
        let counted = Arc::new(AtomicU64::new(0));
        let zero = ZeroConfig { overlap: self.overlap, ..self.config.zero(strategy.zero) };
        let mut setup = Setup::new(self.config, strategy).zero(zero.clone());
        if let Some(broken) = self.broken.filter(|_| strategy.expert > 1) {
            setup = setup.zero(broken.zero(zero));
            let group = world.clone().named("experts");
            let counted = counted.clone();
            setup = setup.layers(move |tensor| {
                let (tensor, group, counted) = (tensor.clone(), group.clone(), counted.clone());
                Box::new(BrokenLayers { broken, tensor, group, counted })
            });
            // All scores are equal then, everyone chooses the first experts, and the last rank's
            // get nothing.
            if broken == Break::SkipEmpty {
                let seed = self.config.seed;
                setup = setup.values(move |spec, elements, out| {
                    if spec.name.contains("router") {
                        out.fill(0.0);
                    } else {
                        spec.initial(seed, elements, out);
                    }
                });
            }
        }
        setup = self.with_biases(setup);
        Ok(Watched { training: setup.begin(world)?, counted: counted.clone() })
    }

    /// A training that begins with biases, if the mistake shows only then.
    pub fn with_biases<'a>(&self, setup: Setup<'a>) -> Setup<'a> {
        if self.broken != Some(Break::BiasedWeights) {
            return setup;
        }
        let seed = self.config.seed;
        setup.values(move |spec, elements, out| {
            spec.initial(seed, elements.clone(), out);
            if spec.whole.part == Part::SelectionBias {
                let biases = elements.map(|expert| 0.02 * (expert % 3) as f32);
                out.iter_mut().zip(biases).for_each(|(out, bias)| *out = bias);
            }
        })
    }

    /// Computes a step, and averages its gradients. Returns what all ranks know of it, without
    /// norm.
    ///
    /// # Errors
    /// If a pass or a message fails.
    pub fn compute(
        &self,
        watched: &mut Watched,
        world: &Comm,
        passes: &[(Batch, Pass)],
    ) -> Result<Taken> {
        let training = &mut watched.training;
        let begun = Instant::now();
        let experts = training.replicas.experts().cloned();
        let sent_before = experts.as_ref().map_or(0, |group| group.traffic().bytes);
        let all_before = world.total_traffic().bytes;
        watched.counted.store(0, Relaxed);
        let ran = training.passes(passes)?;
        let sent = experts.as_ref().map_or(0, |group| group.traffic().bytes) - sent_before;
        training.average()?;
        let all_sent = world.total_traffic().bytes - all_before;
        let balances = || passes.iter().filter_map(|(_, pass)| pass.balance.as_ref());
        if let Some(broken) = self.broken {
            broken.change_step(training, balances())?;
        }
        let seconds = begun.elapsed().as_secs_f64();

        let loss = training.loss(&ran)?;
        let loss = training.mesh.group(Axis::Data).reduced(loss, Reduce::Mean)?;
        let seen = Taken::seen(training, balances());
        let balancing = world.reduced(seen.balancing, Reduce::Sum)?;
        // Each tensor rank has seen the same, and each data rank has its part of the mean.
        let tensor = training.tensor.group().size() as u64;
        let layers = expert_layers(&self.config.shape);
        let mut all: Vec<u64> = seen.copies.concat();
        let copies: u64 = all.iter().sum();
        let own = match self.broken {
            Some(Break::CountedTwice) if experts.is_some() => watched.counted.load(Relaxed),
            _ => copies,
        };
        all.extend([own, copies, seen.others, sent, all_sent]);
        all.extend(seen.dropped);
        all.extend(seen.routed.to_array());
        world.all_reduce(&mut all, Reduce::Sum)?;
        let number = all.len() - 11;
        let [own, copies, others, sent, all_sent, dropped, beyond, routed @ ..]: [u64; 11] =
            all[number..].try_into()?;
        let all = &all[..number];
        Ok(Taken {
            loss,
            balancing: balancing * training.strategy.pipeline as f64 / world.size() as f64,
            copies: all
                .chunks(number / layers)
                .map(|of_layer| of_layer.iter().map(|copies| copies / tensor).collect())
                .collect(),
            routed: Routed::from_array(routed),
            dropped: [dropped / tensor, beyond / tensor],
            counted: [own / tensor, copies / tensor],
            others: others / tensor,
            sent,
            all_sent,
            seconds,
            ..Taken::default()
        })
    }

    /// Takes a step over its `passes`.
    ///
    /// # Errors
    /// As [`Job::compute`], and if the norm is not finite.
    pub fn take(
        &self,
        watched: &mut Watched,
        world: &Comm,
        step: usize,
        passes: &[(Batch, Pass)],
    ) -> Result<Taken> {
        let mut taken = self.compute(watched, world, passes)?;
        let before = world.total_traffic().bytes;
        taken.norm = watched.training.update(step)?;
        taken.add_bytes(&watched.training, world, before)?;
        Ok(taken)
    }
}

impl Taken {
    /// What one rank has seen of a step.
    fn seen<'a>(training: &Training, balances: impl Iterator<Item = &'a Arc<Balance>>) -> Taken {
        let shape = &training.config.shape;
        let number = shape.experts.map_or(0, |experts| experts.count);
        let here = match training.replicas.experts() {
            Some(group) => ExpertParallel::new(group.clone()).share(number),
            None => 0..number,
        };
        let copies = vec![vec![0; number]; expert_layers(shape)];
        let mut seen = Taken { copies, ..Taken::default() };
        let most = |load: &Load| {
            let experts = shape.experts?;
            Some(experts.selection.capacity?.most(load.tokens, &experts) as u64)
        };
        let layers = (0..shape.layers).filter(|&layer| shape.experts_of(layer).is_some());
        let names: BTreeMap<String, usize> = layers
            .map(|layer| format!("{}.experts", shape.block_name(layer)))
            .zip(0..)
            .collect();
        let micro_batches = training.micro_batches() as f64;
        for balance in balances {
            seen.balancing += balance.loss() / micro_batches;
            seen.others += balance.others();
            for (name, load) in balance.loads() {
                seen.routed.add(&load, &here);
                seen.dropped[0] += load.dropped();
                if let Some(most) = most(&load) {
                    let beyond = load.copies.iter().map(|copies| copies.saturating_sub(most));
                    seen.dropped[1] += beyond.sum::<u64>();
                }
                let Some(&layer) = names.get(&name) else { continue };
                let sums = &mut seen.copies[layer];
                sums.iter_mut().zip(&load.copies).for_each(|(sum, copies)| *sum += copies);
            }
        }
        seen
    }

    /// Adds the bytes that ranks have sent since `before`, which is this rank's, and what the
    /// step's averages and norms have by formula.
    ///
    /// # Errors
    /// If a collective fails.
    pub fn add_bytes(&mut self, training: &Training, world: &Comm, before: u64) -> Result<()> {
        let sent = world.total_traffic().bytes - before;
        let zero = &training.zero;
        let averages = zero.bytes_a_step() - zero.norm_bytes() as f64;
        self.all_sent += world.reduced(sent, Reduce::Sum)?;
        let averages = world.reduced(averages, Reduce::Sum)?;
        self.averages = averages + norm_bytes(&training.strategy);
        Ok(())
    }
}

/// Bytes that all data ranks send for a norm: an f32 and two f64 in all-reduces. Without shards
/// only ranks that share experts have different gradients.
fn norm_bytes(strategy: &Strategy) -> f64 {
    let ranks = strategy.data * strategy.context;
    let each = if strategy.zero > Stage::Ddp {
        ranks
    } else {
        strategy.expert
    };
    (ranks / each * 2 * (each - 1) * (4 + 16)) as f64
}

/// Layers with experts.
pub fn expert_layers(shape: &ModelShape) -> usize {
    shape.layers - shape.dense_among(&(0..shape.layers))
}

/// This rank's parameters.
pub fn params(training: &Training) -> &Params {
    &training.stages.chunks[0].params
}

/// The biases of all experts, layer by layer, on every rank; without biases nothing.
///
/// # Errors
/// If parameters cannot be gathered.
pub fn biases(training: &mut Training) -> Result<Vec<f32>> {
    if !training.config.shape.experts.is_some_and(|experts| experts.selection.bias) {
        return Ok(Vec::new());
    }
    training.whole(|model| {
        let values = model.params.values();
        let specs = model.params.specs().iter();
        let biases = specs.filter(|spec| spec.whole.part == Part::SelectionBias);
        Ok(biases.flat_map(|spec| values[spec.range()].to_vec()).collect())
    })
}
