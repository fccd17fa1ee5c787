//! The same few steps trained in two ways, to be compared: by N ranks, and by one rank alone.

use super::{AdamW, Config, clip_scale, global_norm};
use crate::comm::{Comm, Reduce};
use crate::data::Batch;
use crate::model::Gpt;
use crate::parallel::Ddp;
use crate::parallel::zero::{Stage, Zero, ZeroConfig};
use crate::show::Screen;
use crate::tensor::Params;
use crate::tensor::stored::{Precision, narrow, widen};
use anyhow::Result;
use half::bf16;
use std::sync::Arc;

/// A model with its data and its optimizer, able to take any rank's part in a step.
pub trait Replica {
    fn params(&self) -> &Arc<Params>;

    /// Forward and backward pass over the batch that rank `rank` has at `step` (from 0). Adds to the gradients; returns the
    /// loss.
    fn backward(&mut self, rank: usize, step: usize) -> Result<f64>;

    /// The optimizer's step, with the gradients as they are now.
    fn update(&mut self, step: usize) -> Result<()>;
}

/// What a short training left: the loss of every step, and all parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    pub losses: Vec<f64>,
    pub values: Vec<f32>,
}

impl Trace {
    /// The largest difference of two parameters; NaN if there is one.
    pub fn largest_difference(&self, other: &Trace) -> f32 {
        let differences = self.values.iter().zip(&other.values).map(|(a, b)| (a - b).abs());
        differences.fold(0.0, |largest, d| if d > largest || d.is_nan() { d } else { largest })
    }
}

/// Trains with DDP: what each rank of `comm` does. The losses are this rank's own.
pub fn ddp(comm: &Comm, mut replica: impl Replica, steps: usize) -> Result<Trace> {
    let ddp = Ddp::new(replica.params(), comm)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        replica.params().zero_gradients();
        losses.push(replica.backward(comm.rank(), step)?);
        ddp.finish()?;
        replica.update(step)?;
    }
    let values = replica.params().values().clone();
    Ok(Trace { losses, values })
}

// ANCHOR: in_turns
/// One rank that goes through the batches of `ranks` ranks one after the other, adds up their finished gradients in rank
/// order, and divides: the same sums in the same order, so the same bits as N ranks.
pub fn in_turns(mut replica: impl Replica, ranks: usize, steps: usize) -> Result<Trace> {
    let mut losses = Vec::new();
    for step in 0..steps {
        let mut sum = vec![0f32; replica.params().numel()];
        let mut loss = 0.0;
        for rank in 0..ranks {
            replica.params().zero_gradients();
            loss += replica.backward(rank, step)?;
            let gradients = replica.params().gradients();
            match rank {
                0 => sum.copy_from_slice(&gradients),
                _ => sum.iter_mut().zip(&*gradients).for_each(|(sum, g)| *sum += g),
            }
        }
        sum.iter_mut().for_each(|sum| *sum /= ranks as f32);
        replica.params().gradients().copy_from_slice(&sum);
        losses.push(loss / ranks as f64);
        replica.update(step)?;
    }
    let values = replica.params().values().clone();
    Ok(Trace { losses, values })
}
// ANCHOR_END: in_turns

/// Compares what the ranks trained (`ours`) with what one rank trains in turns, which rank 0 does meanwhile. Rank 0
/// prints the check; every rank returns whether it holds.
///
/// In this process, and with two ranks anywhere, sums have one order and the parameters must be bitwise equal. An MPI
/// library adds three or more numbers in an order of its own; then the losses must agree within `bound`, such as
/// [`Precision::loss_bound`].
pub fn compare(
    comm: &Comm,
    screen: &Screen,
    bound: f64,
    ours: &Trace,
    in_turns: impl FnOnce() -> Result<Trace>,
) -> Result<bool> {
    let mut losses = ours.losses.clone();
    comm.all_reduce(&mut losses, Reduce::Mean)?;
    let mut holds = [0u8];
    if comm.rank() == 0 {
        let serial = in_turns()?;
        let difference = ours.largest_difference(&serial);
        let apart = losses.iter().zip(&serial.losses).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        let own_order = !comm.adds_in_rank_order();
        let sound = difference == 0.0 || (own_order && apart < bound);
        let result = match (difference == 0.0, own_order) {
            (true, _) => "bitwise equal".to_string(),
            (false, true) => format!("losses within {apart:.0e} (MPI adds in its own order)"),
            (false, false) => format!("off by {difference:e}"),
        };
        let ranks = if comm.size() == 1 { "rank" } else { "ranks" };
        let what = format!("{} steps, {} {ranks} against 1 rank in turns", losses.len(), comm.size());
        screen.say(format!("\n{}\n", screen.check(sound, &what, &result)));
        holds = [sound.into()];
    }
    comm.broadcast(&mut holds, 0)?;
    Ok(holds[0] == 1)
}

/// [`ddp`] with a GPT; only rank 0's initial weights count.
pub fn train_ddp(comm: &Comm, config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    ddp(comm, GptReplica::new(config, text, config.seed_of(comm.rank()))?, steps)
}

/// The same with [`Zero`], whatever it divides.
pub fn train_zero(comm: &Comm, config: &Config, text: &[u32], zero: ZeroConfig, steps: usize) -> Result<Trace> {
    let mut replica = GptReplica::new(config, text, config.seed_of(comm.rank()))?;
    let mut zero = Zero::new(replica.params(), comm, zero)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        zero.begin()?;
        losses.push(replica.backward(comm.rank(), step)?);
        zero.finish()?;
        zero.step(config.schedule.at(step), config.clip)?;
    }
    zero.leave()?;
    let values = replica.params().whole()?.clone();
    Ok(Trace { losses, values })
}

/// [`in_turns`] with a GPT.
pub fn train_in_turns(config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    if config.zero.precision == Precision::Bf16 {
        return train_in_turns_bf16(config, text, steps);
    }
    in_turns(GptReplica::new(config, text, config.seed)?, config.ranks, steps)
}

/// [`in_turns`] with a GPT that is stored in bf16: gradients are added in f32, and their mean is rounded once.
fn train_in_turns_bf16(config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    let mut replica = GptReplica::new(config, text, config.seed)?;
    let alone = ZeroConfig::new(Stage::Zero, Precision::Bf16, config.adamw);
    let mut zero = Zero::new(replica.params(), &Comm::alone(), alone)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let (mut sum, mut loss) = (vec![0f32; replica.params().numel()], 0.0);
        for rank in 0..config.ranks {
            zero.begin()?;
            loss += replica.backward(rank, step)?;
            zero.finish()?;
            let gradients = replica.params().stored_gradients::<bf16>();
            match rank {
                0 => widen(&gradients, &mut sum),
                _ => sum.iter_mut().zip(&*gradients).for_each(|(sum, g)| *sum += g.to_f32()),
            }
        }
        sum.iter_mut().for_each(|sum| *sum /= config.ranks as f32);
        narrow(&sum, &mut replica.params().stored_gradients::<bf16>());
        losses.push(loss / config.ranks as f64);
        zero.step(config.schedule.at(step), config.clip)?;
    }
    zero.leave()?;
    let values = replica.params().whole()?.clone();
    Ok(Trace { losses, values })
}

/// One rank that takes all ranks' sequences as one large batch: the same mathematics, sums in another order.
pub fn train_large_batch(config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    let mut replica = GptReplica::new(config, text, config.seed)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let all: Vec<Batch> = (0..config.ranks).map(|rank| config.sampler(rank).batch(text, step, 0)).collect();
        replica.params().zero_gradients();
        losses.push(replica.learn(step, &Batch::concat(&all))?);
        replica.update(step)?;
    }
    let values = replica.params().values().clone();
    Ok(Trace { losses, values })
}

struct GptReplica<'a> {
    gpt: Gpt,
    adamw: AdamW,
    config: &'a Config,
    text: &'a [u32],
}

impl<'a> GptReplica<'a> {
    fn new(config: &'a Config, text: &'a [u32], seed: u64) -> Result<GptReplica<'a>> {
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(seed);
        let adamw = AdamW::new(config.adamw, &gpt.params);
        Ok(GptReplica { gpt, adamw, config, text })
    }

    fn learn(&self, step: usize, batch: &Batch) -> Result<f64> {
        let loss = self.gpt.loss(batch, &self.config.pass(step, &batch.sequences))?;
        loss.backward()?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }
}

impl Replica for GptReplica<'_> {
    fn params(&self) -> &Arc<Params> {
        &self.gpt.params
    }

    fn backward(&mut self, rank: usize, step: usize) -> Result<f64> {
        self.learn(step, &self.config.sampler(rank).batch(self.text, step, 0))
    }

    fn update(&mut self, step: usize) -> Result<()> {
        let norm = global_norm(&self.gpt.params.gradients());
        self.adamw.step(&self.gpt.params, self.config.schedule.at(step), clip_scale(norm, self.config.clip)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_difference_is_found_and_nan_is_one() {
        let trace = |values: &[f32]| Trace { losses: Vec::new(), values: values.to_vec() };
        let zero = trace(&[0.0; 3]);
        assert_eq!(trace(&[0.5, -2.0, 1.0]).largest_difference(&zero), 2.0);
        assert_eq!(zero.largest_difference(&zero), 0.0);
        assert!(trace(&[0.5, f32::NAN, 1.0]).largest_difference(&zero).is_nan());
    }
}
