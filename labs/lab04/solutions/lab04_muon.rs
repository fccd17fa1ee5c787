//! lab04-muon · Right on one rank

use shardlab::comm::{Comm, Result};
use shardlab::optim::{NewtonSchulz, orthogonal};

/// A rank's rows of a matrix.
pub struct Rows {
    pub values: Vec<f32>,
    pub momentum: Vec<f32>,
}

/// Takes one step. `gradient` is that of this rank's rows, and `shape` the whole matrix's.
pub fn step(
    comm: &Comm,
    mine: &mut Rows,
    gradient: &[f32],
    shape: [usize; 2],
    lr: f32,
) -> Result<()> {
    for (m, g) in mine.momentum.iter_mut().zip(gradient) {
        *m = 0.95 * *m + 0.05 * g;
    }
    // What is orthogonal depends on all rows, so every rank makes the whole step and takes its
    // rows.
    let mut momentum = vec![0.0; shape[0] * shape[1]];
    comm.all_gather(&mine.momentum, &mut momentum)?;
    let step = orthogonal(&momentum, shape, NewtonSchulz::DeepSeekV4);
    let start = comm.rank() * mine.values.len();
    for (p, x) in mine.values.iter_mut().zip(&step[start..]) {
        *p -= lr * x;
    }
    Ok(())
}
