//! lab01-ring · The ring all-reduce

use shardlab::comm::{Comm, Result};
use std::ops::Range;

/// The sum of all ranks' `data`, on every rank.
pub fn all_reduce(comm: &Comm, data: &mut [f32]) -> Result<()> {
    let (n, rank, len) = (comm.size(), comm.rank(), data.len());
    let (right, left) = ((rank + 1) % n, (rank + n - 1) % n);
    // Part i, for any i from 0 on: after part n-1 comes part 0 again.
    let part = |i: usize| -> Range<usize> { i % n * len / n..(i % n + 1) * len / n };
    // Each part sets out from the rank of its own number; what comes is one part behind.
    for step in 0..n - 1 {
        comm.send(&data[part(rank + n - step)], right)?;
        let mine = &mut data[part(rank + n - step - 1)];
        let mut incoming = vec![0.0; mine.len()];
        comm.recv(&mut incoming, left)?;
        mine.iter_mut().zip(&incoming).for_each(|(x, y)| *x += y);
    }
    // Now part rank+1 is complete here.
    for step in 0..n - 1 {
        comm.send(&data[part(rank + 1 + n - step)], right)?;
        comm.recv(&mut data[part(rank + n - step)], left)?;
    }
    Ok(())
}
