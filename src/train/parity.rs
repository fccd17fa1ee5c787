//! The same few steps trained in two ways, to be compared: by N ranks, and by one rank alone.

use super::{AdamW, Config, clip_scale, global_norm};
use crate::comm::Comm;
use crate::data::Batch;
use crate::model::Gpt;
use crate::parallel::Ddp;
use crate::tensor::Params;
use anyhow::Result;

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
pub fn train_ddp(comm: &Comm, config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    let (gpt, mut adamw) = start(config, config.seed + comm.rank() as u64)?;
    let ddp = Ddp::new(&gpt.params, comm)?;
    let sampler = config.sampler(comm.rank());
    let mut losses = Vec::new();
    for step in 0..steps {
        gpt.params.zero_gradients();
        losses.push(backward(&gpt, config, step, &sampler.batch(text, step, 0))?);
        ddp.finish()?;
        update(&gpt.params, &mut adamw, config, step);
    }
    Ok(Trace { losses, values: gpt.params.values().clone() })
}

/// One rank that goes through the ranks' batches one after the other, adds up their finished gradients in rank order, and
/// divides: the same sums in the same order, so the same bits as N ranks.
pub fn train_in_turns(config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    let (gpt, mut adamw) = start(config, config.seed)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let mut sum = vec![0f32; gpt.params.numel()];
        let mut loss = 0.0;
        for rank in 0..config.ranks {
            gpt.params.zero_gradients();
            loss += backward(&gpt, config, step, &config.sampler(rank).batch(text, step, 0))?;
            let gradients = gpt.params.gradients();
            match rank {
                0 => sum.copy_from_slice(&gradients),
                _ => sum.iter_mut().zip(&*gradients).for_each(|(sum, g)| *sum += g),
            }
        }
        sum.iter_mut().for_each(|sum| *sum /= config.ranks as f32);
        gpt.params.gradients().copy_from_slice(&sum);
        losses.push(loss / config.ranks as f64);
        update(&gpt.params, &mut adamw, config, step);
    }
    Ok(Trace { losses, values: gpt.params.values().clone() })
}

/// One rank that takes all ranks' sequences as one large batch: the same mathematics, sums in another order.
pub fn train_large_batch(config: &Config, text: &[u32], steps: usize) -> Result<Trace> {
    let (gpt, mut adamw) = start(config, config.seed)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let all: Vec<Batch> = (0..config.ranks).map(|rank| config.sampler(rank).batch(text, step, 0)).collect();
        gpt.params.zero_gradients();
        losses.push(backward(&gpt, config, step, &Batch::concat(&all))?);
        update(&gpt.params, &mut adamw, config, step);
    }
    Ok(Trace { losses, values: gpt.params.values().clone() })
}

fn start(config: &Config, seed: u64) -> Result<(Gpt, AdamW)> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(seed);
    let adamw = AdamW::new(config.adamw, &gpt.params);
    Ok((gpt, adamw))
}

fn backward(gpt: &Gpt, config: &Config, step: usize, batch: &Batch) -> Result<f64> {
    let loss = gpt.loss(batch, &config.pass(step, &batch.sequences))?;
    loss.backward()?;
    Ok(f64::from(loss.to_scalar::<f32>()?))
}

fn update(params: &Params, adamw: &mut AdamW, config: &Config, step: usize) {
    let norm = global_norm(&params.gradients());
    adamw.step(params, config.schedule.at(step), clip_scale(norm, config.clip));
}
