//! lab00-token · A number to the left

use shardlab::comm::{Comm, Result};

/// Gives `mine` to the left neighbour, and returns what the right neighbour gave.
pub fn pass_left(comm: &Comm, mine: u64) -> Result<u64> {
    let rank: usize = comm.rank(); // 0, 1, … size - 1
    let size: usize = comm.size(); // any number of ranks: 3 in the picture
    // A rank more than needed, so that it is never below 0; the remainder takes it off again.
    let to = (rank + size - 1) % size;
    let from = (rank + 1) % size;
    comm.send(&[mine], to)?;
    let mut incoming: [u64; 1] = [0];
    comm.recv(&mut incoming, from)?;
    Ok(incoming[0])
}
