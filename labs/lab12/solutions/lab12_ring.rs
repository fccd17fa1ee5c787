//! lab12-ring · The softmax of a ring

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
    let ranks = comm.size();
    let next = (comm.rank() + 1) % ranks;
    let previous = (comm.rank() + ranks - 1) % ranks;
    let width = mine.values[0].len();
    let mut largest = vec![f64::NEG_INFINITY; queries.len()];
    let mut sums = vec![0.0; queries.len()];
    let mut results = vec![vec![0.0; width]; queries.len()];
    let mut block = mine.clone();
    for round in 0..ranks {
        let more = round + 1 < ranks;
        if more {
            send(comm, &block, next)?; // travels while this rank computes
        }
        for (i, query) in queries.iter().enumerate() {
            for (j, key) in block.keys.iter().enumerate() {
                if block.positions[j] > mine.positions[i] {
                    continue;
                }
                let score = score(query, key);
                let top = score.max(largest[i]);
                let old = (largest[i] - top).exp(); // 0 for the first key
                let new = (score - top).exp();
                sums[i] = sums[i] * old + new;
                for (result, value) in results[i].iter_mut().zip(&block.values[j]) {
                    *result = *result * old + value * new;
                }
                largest[i] = top;
            }
        }
        if more {
            block = receive(comm, &block, previous)?;
        }
    }
    for (result, sum) in results.iter_mut().zip(sums) {
        result.iter_mut().for_each(|x| *x /= sum);
    }
    Ok(results)
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
