//! lab00-token · A number to the left
//!
//! All ranks run this function at the same moment. Each rank brings one number. It gives that
//! number to the rank on its left, and returns the one that the rank on its right gave it. The
//! ranks form a ring: left of rank 0 sits the last rank.
//!
//! ```text
//!            rank 0   rank 1   rank 2
//! brings         10       20       30
//! returns        20       30       10
//! ```
//!
//! You need three calls, and `%` as in Python:
//!
//! - `comm.send(&[mine], to)?` sends one number to rank `to`, and does not wait until it arrives.
//!   `&[mine]` is a slice of one number. `?` ends the function if the call failed, as an exception
//!   would.
//! - `comm.recv(&mut incoming, from)?` waits for a number from rank `from` and puts it into
//!   `incoming`. Make room for it first: `let mut incoming: [u64; 1] = [0];`
//! - `Ok(incoming[0])`, on the last line and without a semicolon, returns it: all went well, and
//!   this is the result.
//!
//! A `usize` is never negative. Where Python computes 0 - 1 = -1, this program stops with an error.

use shardlab::comm::{Comm, Result};

/// Gives `mine` to the left neighbour, and returns what the right neighbour gave.
pub fn pass_left(comm: &Comm, mine: u64) -> Result<u64> {
    let rank: usize = comm.rank(); // 0, 1, … size - 1
    let size: usize = comm.size(); // any number of ranks: 3 in the picture
    todo!(
        "rank {rank} of {size} has {mine}: to whom does it go, and from whom does the next one come?"
    )
}
