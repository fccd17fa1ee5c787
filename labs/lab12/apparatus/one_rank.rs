//! The same training on one rank that holds whole sequences.

use super::{Packed, attending};
use anyhow::Result;
use kit::parity::{by_name, loss_bound, rounds, stored_gradients};
use kit::steady;
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::model::Pass;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};
use std::collections::HashMap;

/// What one rank has trained.
#[derive(Default)]
pub struct OneRank {
    pub losses: Vec<f64>,
    /// The first step's gradients, by parameter.
    pub gradients: HashMap<String, Vec<f32>>,
    pub grad_norm: f64,
    /// Bytes that the forward pass has left for the backward pass.
    pub activations: u64,
    /// The most bytes that one layer's attention holds at once: [`attending()`].
    pub attending: f64,
}

impl OneRank {
    /// Takes a job's steps on one rank, each with the sequences of all replicas as one batch.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn train(config: &Config, packed: Packed, text: &[u32]) -> Result<OneRank> {
        let one = Config { ranks: 1, grad_accum: 1, ..config.clone() };
        let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        let mut found = OneRank {
            attending: attending(&Comm::alone(), &Strategy::SINGLE, config, &packed, text)?,
            ..OneRank::default()
        };
        for step in 0..config.steps {
            let passes = whole_step(&alone, config, packed, text, step)?;
            let ran = alone.passes(&passes)?;
            alone.average()?;
            if step == 0 {
                let params = &alone.stages.chunks[0].params;
                found.gradients = by_name(params, &stored_gradients(params));
                found.grad_norm = alone.zero.norm()?;
            }
            if step <= 1 {
                // The first step also leaves buffers that are not the step's.
                found.activations = ran.passes[0].bytes.max(0) as u64;
            }
            found.losses.push(alone.loss(&ran)?);
            alone.update(step)?;
        }
        Ok(found)
    }
}

/// How many of a training's first `losses` are to be compared with one rank's.
///
/// # Errors
/// If a pass fails.
pub fn steady_steps(
    config: &Config,
    packed: Packed,
    text: &[u32],
    one: &OneRank,
    losses: &[f64],
) -> Result<usize> {
    let alone = Config { ranks: 1, grad_accum: 1, ..config.clone() };
    let passes = |alone: &Training, step: usize| whole_step(alone, config, packed, text, step);
    let bound = loss_bound(rounds(config));
    steady::compared(&alone, 0, (losses, &one.losses), bound, passes)
}

/// All sequences of a step, as one micro-batch.
fn whole_step(
    alone: &Training,
    config: &Config,
    packed: Packed,
    text: &[u32],
    step: usize,
) -> Result<Vec<(Batch, Pass)>> {
    let mut all = Vec::new();
    for replica in 0..config.ranks {
        for micro in 0..config.grad_accum {
            all.push(packed.pack(config.sampler(replica).batch(text, step, micro)));
        }
    }
    alone.with_passes(step, vec![Batch::concat(&all)])
}
