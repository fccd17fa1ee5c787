//! lab00-send · From rank 0 to rank 1
//!
//! All ranks run this function, line by line, and each brings a number. Rank 0 gives a copy of its number to rank 1, which
//! takes it in place of its own. All other ranks keep what they have.
//!
//! ```text
//!            rank 0   rank 1   rank 2
//! brings         10       20       30
//! has then       10       10       30
//! ```
//!
//! - `comm.send(number, 1)?;` sends this rank's number to rank 1, and does not wait for it.
//! - `comm.recv(number, 0)?;` waits for a number from rank 0, and puts it in place of this rank's.
//! - `comm.rank()` is the number of the rank that runs this line. `if comm.rank() == 0 { … }` is for rank 0 alone.

use shardlab::comm::{Comm, Result};

/// Gives rank 0's number to rank 1.
pub fn give(comm: &Comm, number: &mut [u64]) -> Result<()> {
    if comm.rank() == 0 {
        todo!("rank 0 has {number:?}: what does it do now, and what does rank 1 do?");
    }
    Ok(())
}
