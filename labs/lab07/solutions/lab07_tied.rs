//! lab07-tied · The table that two stages hold

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
    // Rank 0 has the gradient through the embedding, rank 1 the one through the head. The table's gradient is their sum. Both
    // copies begin with the same values, so with the same gradient they stay the same.
    comm.all_reduce(&mut stage.table.gradient, Reduce::Sum)?;
    // Both ranks have this gradient, and the model has it once.
    let table = if comm.rank() == 0 {
        squares(&stage.table.gradient)
    } else {
        0.0
    };
    let mut sum = [table + squares(&stage.layers.gradient)];
    comm.all_reduce(&mut sum, Reduce::Sum)?;
    let norm = sum[0].sqrt();
    update(stage, (clip / norm).min(1.0));
    Ok(norm)
}
