//! lab01 · Collectives, taken apart
//!
//! What does a collective do, what does it cost, and what if a rank is missing?
//!
//! A collective is a call that all ranks make together. The all-reduce adds up their numbers and
//! gives every rank the sums; here everything goes through rank 0. `cargo run --bin lab01` draws
//! it, goes around a ring instead, and compares four algorithms: one result, different costs.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};

// ANCHOR: heart
/// Adds up the ranks' numbers, element by element, and gives every rank the sums. Rank 0 does all
/// the adding: the others send it their numbers, and get the sums back.
///
/// It is right, and it does not scale: rank 0 receives and sends n-1 times the numbers, one rank
/// after the other, while all wait.
pub fn all_reduce(mine: &[f32], comm: &Comm) -> Result<Vec<f32>> {
    let mut sums = mine.to_vec();
    if comm.rank() == 0 {
        let mut theirs = vec![0.0; mine.len()];
        for other in 1..comm.size() {
            comm.recv(&mut theirs, other)?;
            for (sum, x) in sums.iter_mut().zip(&theirs) {
                *sum += x;
            }
        }
        for other in 1..comm.size() {
            comm.send(&sums, other)?;
        }
    } else {
        comm.send(mine, 0)?;
        comm.recv(&mut sums, 0)?;
    }
    Ok(sums)
}

/// The same numbers with the all-reduce above, and with the library's.
pub fn compare_all_reduces(comm: &Comm) -> Result<Beside> {
    const ELEMENTS: usize = 1680; // 2 to 8 ranks divide it evenly
    // 1, 1/2, 1/3, …: sums that f32 has to round, so that the order of adding shows.
    let mine: Vec<f32> = (1..=ELEMENTS).map(|i| 1.0 / (i + comm.rank()) as f32).collect();
    let lesson = all_reduce(&mine, comm)?;
    let mut library = mine;
    comm.all_reduce(&mut library, Reduce::Sum)?;
    let bound = Beside::of_any_order(comm, comm.size() as f64); // no number is above 1
    Ok(Beside::of(comm, &lesson, &library, bound)?)
}
// ANCHOR_END: heart
