//! lab01-ring · The ring all-reduce

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
    // Chunk r starts on rank r. The chunk that arrives is the one before the chunk that leaves.
    for round in 0..n - 1 {
        comm.send(&data[chunk(rank + n - round)], right)?;
        let mine = &mut data[chunk(rank + n - round - 1)];
        let mut incoming = vec![0.0; mine.len()];
        comm.recv(&mut incoming, left)?;
        for (x, y) in mine.iter_mut().zip(&incoming) {
            *x += y;
        }
    }
    // Now chunk rank+1 is complete here.
    for round in 0..n - 1 {
        comm.send(&data[chunk(rank + 1 + n - round)], right)?;
        comm.recv(&mut data[chunk(rank + n - round)], left)?;
    }
    Ok(())
}
