//! lab07-tied · Right in the first step

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
    // The first rank has the gradient through the embedding, the last one that through the head.
    // The table's gradient is their sum. Both copies begin with the same values, so with the same
    // gradient they stay the same.
    let first = comm.rank() == 0;
    let last = comm.rank() + 1 == comm.size();
    if first != last {
        let other = if first { comm.size() - 1 } else { 0 };
        let mut part = vec![0.0; stage.table.gradient.len()];
        // A send may wait until the other rank receives, so one of the two receives first.
        if first {
            comm.recv(&mut part, other)?;
            comm.send(&stage.table.gradient, other)?;
        } else {
            comm.send(&stage.table.gradient, other)?;
            comm.recv(&mut part, other)?;
        }
        for (g, part) in stage.table.gradient.iter_mut().zip(part) {
            *g += part;
        }
    }
    // Two ranks have this gradient, and the model has it once.
    let table = if first { squares(&stage.table.gradient) } else { 0.0 };
    let mut sum = [table + squares(&stage.layers.gradient)];
    comm.all_reduce(&mut sum, Reduce::Sum)?;
    let norm = sum[0].sqrt();
    update(stage, (clip / norm).min(1.0));
    Ok(norm)
}
