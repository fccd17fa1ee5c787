//! lab05-cross-entropy · A loss that never gathers logits

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
    use shardlab::comm::Reduce;
    let n = rows.len();
    let column = |target: usize| target.checked_sub(first).filter(|j| *j < columns);
    // A rank that has only padding brings -infinity: any other rank's logit is larger.
    let mut largest = vec![f64::NEG_INFINITY; n];
    for (i, row) in rows.iter().enumerate() {
        for logit in &row[..columns] {
            largest[i] = largest[i].max(*logit);
        }
    }
    comm.all_reduce(&mut largest, Reduce::Max)?;

    // First the sum of each position, then the target's logit of each position, from the one rank
    // that has it.
    let sum =
        |i: usize| rows[i][..columns].iter().map(|logit| (logit - largest[i]).exp()).sum::<f64>();
    let target = |i: usize| column(targets[i]).map_or(0.0, |j| rows[i][j]);
    let mut both: Vec<f64> = (0..n).map(sum).chain((0..n).map(target)).collect();
    comm.all_reduce(&mut both, Reduce::Sum)?;
    let (sums, target) = both.split_at(n);
    let loss = (0..n).map(|i| largest[i] + sums[i].ln() - target[i]).sum::<f64>() / n as f64;

    let gradient = |i: usize| {
        let mut row = vec![0.0; rows[i].len()];
        for j in 0..columns {
            row[j] = (rows[i][j] - largest[i]).exp() / sums[i] / n as f64;
        }
        if let Some(j) = column(targets[i]) {
            row[j] -= 1.0 / n as f64;
        }
        row
    };
    Ok((loss, (0..n).map(gradient).collect()))
}
