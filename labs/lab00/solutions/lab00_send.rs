//! lab00-send · From rank 0 to rank 1

use shardlab::comm::{Comm, Result};

pub fn give(comm: &Comm, number: &mut [u64]) -> Result<()> {
    if comm.rank() == 0 {
        comm.send(number, 1)?;
    } else if comm.rank() == 1 {
        comm.recv(number, 0)?;
    }
    Ok(())
}
