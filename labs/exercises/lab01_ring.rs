//! lab01-ring · The ring all-reduce
//!
//! Every rank brings as many numbers; in the end every rank holds their sums, element by element. There is no root that
//! everything goes through: ranks stand in a ring, and each only ever sends to its right and receives from its left.
//!
//! The numbers are cut into n parts, one for each of n ranks. In a step each rank sends one part and receives another. First
//! the parts go round and grow: whoever receives one adds its own numbers to it, and after n-1 steps every part is complete,
//! on one rank. Then the complete parts go round once more, and take the place of what the others have.
//!
//! `comm.send(&data[range], to)` sends these numbers, and does not wait for the other side; `comm.recv(&mut numbers, from)`
//! waits until `numbers` are filled. `cargo run --bin lab01 -- --step-by-step` shows all steps. The check counts yours (a send
//! and the receive after it are one) and the bytes that each rank sends.

use shardlab::comm::{Comm, Result};
use std::ops::Range;

/// The sum of all ranks' `data`, on every rank.
pub fn all_reduce(comm: &Comm, data: &mut [f32]) -> Result<()> {
    let (n, rank, len) = (comm.size(), comm.rank(), data.len());
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    // Part i, for any i from 0 on: after part n-1 comes part 0 again.
    let part = |i: usize| -> Range<usize> { i % n * len / n..(i % n + 1) * len / n };
    todo!("send to {right}, receive from {left}; rank {rank} begins with part {:?}", part(rank))
}
