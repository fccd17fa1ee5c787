//! lab12-ring · The softmax of a ring
//!
//! The lab gathers all keys and values, and a rank holds those of whole sequences meanwhile. In a
//! ring a rank holds one other rank's block at a time: it attends to the block, passes it on, and
//! gets the next one. After as many rounds as there are ranks, each query has met all keys.
//!
//! ```text
//! 3 ranks        round 0         round 1         round 2
//! rank 0         block of 0      block of 2      block of 1
//! rank 1         block of 1      block of 0      block of 2
//! rank 2         block of 2      block of 1      block of 0
//!
//! a query with the scores 1 and 3 in round 0, and 5 in round 1:
//! result = (e^1 v1 + e^3 v2 + e^5 v3) / (e^1 + e^3 + e^5)
//! ```
//!
//! A softmax divides by the sum over all keys, and a round has only some of them. Scores can be as
//! large as 1,000, and e^1000 is infinite, even in f64; they can be as small as -1,000, and e^-1000
//! is 0. What has a query to remember from round to round?
//!
//! - A query sees keys of its own position and of earlier ones, wherever these are. In some rounds
//!   it sees none, perhaps in the first.
//! - The result is one row for each of the rank's queries. `score` and the two messages are given.
//! - No rank sends more blocks than it must: the check counts them.

use shardlab::comm::{Comm, Result};

/// Keys and values of some positions, a row each, in any order.
#[derive(Clone)]
pub struct Block {
    pub positions: Vec<f64>,
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
}

/// The score of a query and a key.
pub fn score(query: &[f64], key: &[f64]) -> f64 {
    query.iter().zip(key).map(|(q, k)| q * k).sum()
}

/// Attention of `queries`, which belong to the positions of `mine`, to the keys of all ranks.
pub fn attend(comm: &Comm, queries: &[Vec<f64>], mine: &Block) -> Result<Vec<Vec<f64>>> {
    todo!(
        "rank {} of {} has {} queries, and {} keys of its own",
        comm.rank(),
        comm.size(),
        queries.len(),
        mine.keys.len()
    )
}

/// Sends a block to another rank.
#[track_caller]
pub fn send(comm: &Comm, block: &Block, to: usize) -> Result<()> {
    let keys = block.keys.concat();
    let values = block.values.concat();
    comm.send(&[&block.positions[..], &keys, &values].concat(), to)
}

/// Receives a block, which is as large as `like`.
#[track_caller]
pub fn receive(comm: &Comm, like: &Block, from: usize) -> Result<Block> {
    let rows = like.positions.len();
    let width = like.keys[0].len();
    let mut numbers = vec![0.0; rows + 2 * rows * width];
    comm.recv(&mut numbers, from)?;
    let (positions, rest) = numbers.split_at(rows);
    let (keys, values) = rest.split_at(rows * width);
    let rows = |numbers: &[f64]| numbers.chunks(width).map(<[f64]>::to_vec).collect();
    Ok(Block {
        positions: positions.to_vec(),
        keys: rows(keys),
        values: rows(values),
    })
}
