//! lab04-muon · Right on one rank
//!
//! Broken on purpose: on 1 rank it takes Muon's step. On more ranks it takes another one, the loss
//! falls, and nothing shows it. (DeepSpeed trained so, until someone compared it with one rank:
//! issue 7807.)
//!
//! Muon takes the running mean of a matrix's gradient, the momentum, and makes it orthogonal: its
//! rows (or columns, if it is tall) get length 1 and right angles. That is its step. Each rank
//! holds some rows of the matrix, of its momentum and of its gradient:
//!
//! ```text
//!                 rank 0      rank 1
//! momentum        3  0  0     0  3  0
//!                 0  2  0     2  0  1
//! ```
//!
//! Repair `step`:
//!
//! - On n ranks the matrix moves as on one.
//! - Between two steps a rank holds its own rows of the momentum only.
//! - A step sends what one all-gather sends, and no more.
//!
//! `comm.all_gather(&mine, &mut all)` writes the equal parts of all ranks to `all`, in rank order.
//! `orthogonal(matrix, [rows, cols], steps)` makes a matrix orthogonal.

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
    let [rows, cols] = shape;
    let here = rows / comm.size();
    let step = orthogonal(&mine.momentum, [here, cols], NewtonSchulz::DeepSeekV4);
    for (p, x) in mine.values.iter_mut().zip(step) {
        *p -= lr * x;
    }
    Ok(())
}
