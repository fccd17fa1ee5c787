//! lab07-tied · The table that two stages hold
//!
//! Broken on purpose: on 1 rank it trains well. On 2 ranks the first loss is right, and all later ones are wrong.
//!
//! A GPT uses its token table twice. The embedding looks up a row for each token, and the head multiplies with the same table
//! to get logits. In a pipeline of two stages rank 0 has the embedding and rank 1 has the head, so both hold a copy of the
//! table. A team ran such a pipeline. It did not crash, and its loss fell, so for a month no colleague noticed. Then the
//! checkpoints of the two ranks turned out to contain different tables.
//!
//! Repair it: with any clipping, two ranks must train what one rank trains. `step` ends a training step. It is called after the
//! backward passes of all micro-batches, and returns the norm of the model's gradient for the log.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};

/// Parameters of one rank, and the sum of their gradients over this rank's backward passes.
pub struct Weights {
    pub values: Vec<f64>,
    pub gradient: Vec<f64>,
}

/// A rank trains the token table, and its own layers, which no other rank has. On 1 rank, `layers` has all layers.
pub struct Stage {
    pub table: Weights,
    pub layers: Weights,
}

fn squares(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum()
}

/// Ends a step on 1 rank or 2 ranks. `update(stage, scale)` is the optimizer: it takes `scale` times the gradients.
pub fn step(
    comm: &Comm,
    stage: &mut Stage,
    clip: f64,
    update: &mut dyn FnMut(&mut Stage, f64),
) -> Result<f64> {
    // Each rank has its part of the model, and all ranks need the norm of the whole gradient.
    let mut sum = [squares(&stage.table.gradient) + squares(&stage.layers.gradient)];
    comm.all_reduce(&mut sum, Reduce::Sum)?;
    let norm = sum[0].sqrt();
    update(stage, (clip / norm).min(1.0));
    Ok(norm)
}
