//! lab01-ring · The ring all-reduce
//!
//! All ranks bring equally many numbers. In the end every rank holds the sums over all ranks,
//! element by element. No rank collects everything: the ranks form a ring, and each rank only sends
//! to its right and receives from its left.
//!
//! ```text
//!             rank 0             rank 1             rank 2
//! brings       1   2   3   4     10  20  30  40    100 200 300 400
//! has then   111 222 333 444    111 222 333 444    111 222 333 444
//! ```
//!
//! The numbers are cut into n chunks, one for each of n ranks. In each round a rank sends one chunk
//! and receives one. In the first half the chunks travel and grow: a rank adds its own numbers to
//! each chunk that it receives. After n-1 rounds every chunk is complete, on one rank. In the
//! second half the complete chunks travel on, and replace what the other ranks have.
//!
//! `comm.send(&data[range], to)` sends these numbers, and does not wait for the receiver.
//! `comm.recv(&mut numbers, from)` waits until `numbers` are filled.
//! `cargo run --bin lab01 -- --rounds` shows all rounds. The check counts your rounds (a send and
//! the receive after it are one round) and the bytes that each rank sends.

use shardlab::comm::{Comm, Result};
use std::ops::Range;

/// The sum of all ranks' `data`, on every rank.
pub fn all_reduce(comm: &Comm, data: &mut [f32]) -> Result<()> {
    let n = comm.size();
    let rank = comm.rank();
    let len = data.len();
    let right = (rank + 1) % n;
    let left = (rank + n - 1) % n;
    // Chunk i, for any i from 0 on: after chunk n-1 comes chunk 0 again.
    let chunk = |i: usize| -> Range<usize> { i % n * len / n..(i % n + 1) * len / n };
    todo!(
        "send to {right}, receive from {left}; rank {rank} begins with chunk {:?}",
        chunk(rank)
    )
}
