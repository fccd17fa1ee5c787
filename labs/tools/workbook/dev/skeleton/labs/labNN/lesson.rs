//! labNN · TITLE
//!
//! TODO: which question, in one line?
//!
//! TODO: the idea, in two sentences.
//!
//! Run `cargo run --bin labNN`: TODO, what one sees then.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};

// ANCHOR: heart
/// TODO: the idea in 20 to 40 lines, in the plainest way that works. Here, the sum of all ranks'
/// numbers.
pub fn sum(_comm: &Comm, mine: f64) -> Result<f64> {
    // Nobody has heard of another rank yet.
    Ok(mine)
}

/// The sum above, and the library's `all_reduce`.
pub fn compare_with_all_reduce(comm: &Comm, mine: f64) -> Result<Beside> {
    let lesson = sum(comm, mine)?;
    let mut library = [mine];
    comm.all_reduce(&mut library, Reduce::Sum)?;
    Ok(Beside::of(comm, &[lesson], &library, 0.0)?)
}
// ANCHOR_END: heart
