//! Compares the ranks' models: with hashes for a certain answer, with a distance for a plot.

use crate::comm::{Comm, Reduce};
use crate::sha256;
use crate::tensor::Params;
use anyhow::Result;

/// The SHA-256 of all parameters' bits, in the flat layout, as hexadecimal digits.
fn parameter_hash(params: &Params) -> Result<String> {
    Ok(sha256::hex(bytemuck::cast_slice(&params.whole()?)))
}

/// The parameters' hash on every rank, in rank order.
///
/// # Errors
/// If this rank does not hold all parameters in f32, or the all-gather fails.
pub fn all_hashes(comm: &Comm, params: &Params) -> Result<Vec<String>> {
    let mine = parameter_hash(params)?;
    let mut all = vec![0u8; mine.len() * comm.size()];
    comm.all_gather(mine.as_bytes(), &mut all)?;
    Ok(all
        .chunks_exact(mine.len())
        .map(|hash| String::from_utf8_lossy(hash).into_owned())
        .collect())
}

/// The largest distance of a rank's parameters, `mine`, from rank 0's, relative to their norm. It
/// is 0 if all ranks hold the same parameters.
///
/// # Errors
/// If a collective fails.
pub fn distance(comm: &Comm, mine: &[f32]) -> Result<f64> {
    let mut first = mine.to_vec();
    comm.broadcast(&mut first, 0)?;
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = mine.iter().zip(&first).map(|(a, b)| square(a - b)).sum();
    let size: f64 = first.iter().map(|&x| square(x)).sum();
    let mut largest = [(apart / size).sqrt()];
    comm.all_reduce(&mut largest, Reduce::Max)?;
    Ok(largest[0])
}
