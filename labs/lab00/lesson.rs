//! lab00 · Ranks
//!
//! Who am I, where am I, and how was this job started?
//!
//! A job is N ranks that run the same program. A rank can only be sure of the others by hearing
//! from them: here each rank's number goes from neighbour to neighbour.
//!
//! Run `cargo run --bin lab00`: a line for each rank, and the numbers' way around the ring.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::Comm;

// ANCHOR: heart
/// Each rank passes on what its left neighbour sent. After N-1 rounds every rank has seen every
/// number.
pub fn around_the_ring(comm: &Comm, mine: u64) -> Result<Vec<u64>> {
    let rank = comm.rank();
    let size = comm.size();
    let left = (rank + size - 1) % size;
    let right = (rank + 1) % size;
    let mut seen = vec![mine];
    for _ in 1..size {
        let mut incoming = [0];
        // If it waited for the receiver, all would wait here.
        comm.send(&[seen[seen.len() - 1]], right)?;
        comm.recv(&mut incoming, left)?;
        seen.push(incoming[0]);
    }
    Ok(seen)
}

/// This rank's number around the ring above, and through the library's `all_gather`: both bring it
/// to every rank.
pub fn compare_with_all_gather(comm: &Comm, mine: u64) -> Result<Beside> {
    let size = comm.size();
    let seen = around_the_ring(comm, mine)?;
    let mut lesson = vec![0.0; size];
    for (round, &number) in seen.iter().enumerate() {
        // A number moves one rank to the right in each round.
        let from = (comm.rank() + size - round) % size;
        lesson[from] = number as f64;
    }
    let mut library = vec![0.0; size];
    comm.all_gather(&[mine as f64], &mut library)?;
    // Numbers are passed on, not added, so nothing is rounded.
    Ok(Beside::of(comm, &lesson, &library, 0.0)?)
}
// ANCHOR_END: heart
