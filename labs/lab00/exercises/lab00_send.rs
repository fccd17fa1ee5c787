//! lab00-send · From rank 0 to rank 1
//!
//! Rank 1 takes rank 0's number:
//!
//! ```text
//!            rank 0   rank 1   rank 2
//! brings         10       20       30
//! has then       10       10       30
//! ```
//!
//! `comm.recv(x, 7)?;` waits for rank 7's numbers, and puts them into `x`.

use shardlab::comm::{Comm, Result};

pub fn give(comm: &Comm, number: &mut [u64]) -> Result<()> {
    if comm.rank() == 0 {
        comm.send(number, 1)?;
    } else if comm.rank() == 1 {
        todo!("rank 0's number is on its way")
    }
    Ok(())
}
