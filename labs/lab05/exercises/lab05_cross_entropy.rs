//! lab05-cross-entropy · A loss that never gathers logits
//!
//! The last matrix of a GPT has one row per token of the vocabulary. In the smallest GPT-2 it is as
//! large as five blocks. So the ranks share it, too: for every position, each rank has the logits
//! of some tokens. The loss of a position is ln(sum of e^logit over the vocabulary) - (the target's
//! logit), and no rank has all of these logits.
//!
//! ```text
//! 1 position, whose target is token 2, and 3 tokens on 2 ranks; "·" is padding
//!
//!             rank 0, tokens 0 and 1      rank 1, token 2
//! logits      [[ 7.00   7.00]]            [[ 7.00   · ]]
//! loss           1.10                        1.10              ln 3
//! gradient    [[ 0.33   0.33]]            [[-0.67   0 ]]
//! ```
//!
//! To gather the logits would undo the cut: every rank would receive and hold all of them. Find out
//! how little the ranks have to tell each other. In the end the check counts the bytes.
//!
//! - The gradient is that of the mean loss, with respect to the rank's own logits.
//! - Logits can be as large as 1,000, and as small as -1,000. But e^1000 is infinite, even in f64,
//!   and e^-1000 is 0.
//! - The vocabulary is padded, so that all ranks have equally many columns. The numbers in the
//!   padding mean nothing. They have no part in the loss, and their gradient is 0.
//!
//! `comm.all_reduce(&mut numbers, how)` combines the numbers of all ranks, and `how` is one of
//! `shardlab::comm::Reduce`. Write the loss first, and return an empty gradient: the check looks at
//! the loss first.

use shardlab::comm::{Comm, Result};

/// The logits that a rank has: one row per position, one column per token of its part of the
/// vocabulary, and padding behind.
pub struct Logits<'a> {
    pub rows: &'a [Vec<f64>],
    /// The token of column 0. Column j belongs to token `first + j`.
    pub first: usize,
    /// Columns that belong to a token. All columns after them are padding. Can be 0.
    pub columns: usize,
}

/// The mean loss over all positions, the same on every rank, and the gradient of this rank's
/// logits, row by row.
///
/// `targets` has each position's target, a token of the vocabulary, and is the same on every rank.
pub fn cross_entropy(
    comm: &Comm,
    logits: &Logits,
    targets: &[usize],
) -> Result<(f64, Vec<Vec<f64>>)> {
    let Logits { rows, first, columns } = *logits;
    todo!(
        "rank {} has {columns} tokens from {first} on, for {} targets and {} rows: what does it lack?",
        comm.rank(),
        targets.len(),
        rows.len()
    )
}
