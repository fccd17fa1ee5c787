//! The training that lab02 watches, and the same steps on one rank.

use super::{Iterations, MlpConfig};
use anyhow::{Result, anyhow};
use kit::Part::{Backward, Data, Forward, Optimizer};
use kit::parity::{self, Trained};
use kit::show::Screen;
use kit::{Break, Clock, Symptoms};
use shardlab::comm::Comm;
use shardlab::data::Uniform;
use shardlab::model::LinearStack;
use shardlab::parallel::{Averaged, Ddp};
use shardlab::tensor::Precision;
use shardlab::train::{AdamW, Diverged, clip_scale, global_norm};
use std::ops::Range;

/// Trains with the library's `Ddp`, and watches it: what is said about the run is said here, and
/// the step is [`Replica::step`].
pub fn train(
    config: &MlpConfig,
    broken: Option<Break>,
    comm: &Comm,
    model: &LinearStack,
    journal: &mut Iterations,
) -> Result<Symptoms> {
    let ddp = match broken {
        // In a group of one rank, the rank's own gradients are the average.
        Some(Break::NoAverage) => {
            drop(Ddp::new(&model.params, comm)?); // every rank gets rank 0's weights
            Ddp::new(&model.params, &Comm::alone())?
        }
        // Rank 0's weights to every rank; gradients will be averaged.
        _ => Ddp::new(&model.params, comm)?,
    };
    if broken == Some(Break::NoBroadcast) && comm.rank() > 0 {
        model.params.allocate(config.seed_of(comm.rank()));
    }
    ddp.overlap(false); // so that the timeline shows each wait where it happens
    // Each rank draws its own samples, unless --break says otherwise.
    let data_rank = if broken == Some(Break::SameBatches) {
        0
    } else {
        comm.rank()
    };
    let inputs = config.inputs(data_rank);
    let mut replica = Replica { config, model, inputs, ddp, adam: config.adam(&model.params) };
    let mut symptoms = Symptoms::of(broken);

    for iter in 0..config.steps {
        // Training would go on without this barrier: it is there so that all ranks' clocks start at
        // the same moment.
        comm.barrier()?;
        let mut clock = Clock::start();
        let before = comm.traffic();
        let (loss, averaged) = replica.step(iter, &mut clock)?;
        journal.note(iter, loss, &clock, (comm.traffic() - before).bytes, &averaged)?;
        symptoms.draw(fingerprints(&inputs.batch(iter), inputs.width));
        symptoms.look(comm, &model.params, iter + 1)?;
    }
    Ok(symptoms)
}

/// A hash of each sample of `x`: equal for samples with the same bits, and almost certainly
/// different otherwise.
fn fingerprints(x: &[f32], width: usize) -> Vec<u64> {
    let fold = |hash: u64, x: &f32| (hash ^ u64::from(x.to_bits())).wrapping_mul(0x100_0000_01B3);
    let samples = x.chunks_exact(width);
    samples.map(|sample| sample.iter().fold(0xCBF2_9CE4_8422_2325, fold)).collect()
}

/// One rank's replica: a whole model, and its own samples.
struct Replica<'a> {
    config: &'a MlpConfig,
    model: &'a LinearStack,
    inputs: Uniform,
    ddp: Ddp,
    adam: AdamW,
}

impl Replica<'_> {
    // ANCHOR: step
    /// One iteration with the library's `Ddp`, as every rank takes it. Returns this rank's loss,
    /// and when each bucket of gradients was averaged.
    fn step(&mut self, iter: usize, clock: &mut Clock) -> Result<(f64, Vec<Averaged>)> {
        let Replica { config, model, inputs, ddp, adam } = self;
        let x = clock.time(Data, || inputs.batch(iter)); // this rank's own samples
        let loss = clock.time(Forward, || model.loss(&x))?;
        model.params.zero_gradients();
        // A bucket of gradients is averaged as soon as it is complete.
        clock.time(Backward, || loss.backward())?;
        // Now every rank has the same gradients.
        let averaged = clock.time(Backward, || ddp.finish())?;
        // So it takes the same step.
        clock.time(Optimizer, || adam.step(&model.params, config.lr, 1.0))?;
        Ok((f64::from(loss.to_scalar::<f32>()?), averaged))
    }
    // ANCHOR_END: step
}

/// Trains three iterations on all ranks, and again on one rank that processes all their batches.
pub fn compare_with_one_rank(config: &MlpConfig, screen: &Screen, comm: &Comm) -> Result<bool> {
    const STEPS: usize = 3;
    let rank = comm.rank();
    let ours = iterate(config, comm, rank..rank + 1, STEPS)?;
    let serial = || iterate(config, &Comm::alone(), 0..comm.size(), STEPS);
    let bound = parity::loss_bound(Precision::F32);
    let Trained { losses, values, .. } = &ours;
    parity::compare(comm, comm, screen, bound, losses, Some(values), serial)
}

/// Some iterations on the ranks of `comm`. Each of them processes the batches of `ranks`, one after
/// the other, and adds up their complete gradients.
pub fn iterate(
    config: &MlpConfig,
    comm: &Comm,
    ranks: Range<usize>,
    steps: usize,
) -> Result<Trained> {
    let model = config.model()?;
    model.params.allocate(config.seed_of(comm.rank()));
    let ddp = Ddp::new(&model.params, comm)?;
    let mut adam = config.adam(&model.params);
    let mut trained = Trained { losses: Vec::new(), norms: Vec::new(), values: Vec::new() };
    for iter in 0..steps {
        let count = ranks.len();
        let mut loss = 0.0;
        let mut sum = Vec::new();
        for rank in ranks.clone() {
            model.params.zero_gradients();
            let own = model.loss(&config.inputs(rank).batch(iter))?;
            own.backward()?;
            ddp.finish()?;
            loss += f64::from(own.to_scalar::<f32>()?);
            let gradients = model.params.gradients();
            sum.resize(gradients.len(), 0.0);
            sum.iter_mut().zip(gradients.iter()).for_each(|(sum, g)| *sum += g);
        }
        let mut gradients = model.params.gradients();
        gradients.iter_mut().zip(sum).for_each(|(g, sum)| *g = sum / count as f32);
        let norm = global_norm(&gradients);
        drop(gradients); // unlocked, for the optimizer
        clip_scale(norm, 0.0).map_err(|error| {
            anyhow!("{}\nhelp: lower --lr", Diverged::at(iter + 1, error.into()))
        })?;
        adam.step(&model.params, config.lr, 1.0)?;
        trained.losses.push(loss / count as f64);
        trained.norms.push(norm);
    }
    trained.values = model.params.values().clone();
    Ok(trained)
}
