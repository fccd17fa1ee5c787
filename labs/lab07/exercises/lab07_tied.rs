//! lab07-tied · Right in the first step
//!
//! Broken on purpose: on 1 rank it trains well. On more ranks the first loss is right, and all
//! later ones are wrong.
//!
//! A GPT uses its token table twice: the embedding looks up its rows, and the head multiplies with
//! it. So the first and the last rank of a pipeline hold a copy each. A team ran such a pipeline,
//! and its loss fell, so for a month nobody noticed anything. Then the checkpoints of these two
//! ranks turned out to contain different tables.
//!
//! ```text
//!              loss in step 0   in step 11   norm   the table then begins with
//!    1 rank             1.8009       1.6347   0.816   0.687  0.621
//!    3 ranks            1.8009       1.6442   0.824   0.508  0.484 on rank 0
//!                                                     0.771  0.447 on rank 2
//! ```
//!
//! `step` ends a training step, after the backward passes of all micro-batches, and returns the
//! norm for the log. Repair it:
//!
//! - With any clipping, a pipeline of n ranks trains what one rank trains.
//! - A rank without the table neither receives nor sends parts of it.

use shardlab::Result;
use shardlab::comm::{Comm, Reduce};

/// Parameters of one rank, and the sum of their gradients over this rank's backward passes.
pub struct Weights {
    pub values: Vec<f64>,
    pub gradient: Vec<f64>,
}

/// What a rank trains. The first and the last rank hold the table; on all others it has 0 numbers.
/// Layers are on one rank each.
pub struct Stage {
    pub table: Weights,
    pub layers: Weights,
}

fn squares(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum()
}

/// Ends a step on the ranks of one pipeline. `update(stage, scale)` is the optimizer: it takes
/// `scale` times the gradients.
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
