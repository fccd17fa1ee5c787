//! Are the ranks' models one model? Hashes when the answer must be certain, a distance when one wants to see.

use crate::comm::{Comm, Reduce};
use crate::tensor::Params;
use anyhow::{Result, ensure};
use sha2::{Digest, Sha256};

/// SHA-256 of all parameters' bits, in the model's order, as hexadecimal digits.
pub fn parameter_hash(params: &Params) -> String {
    let digest = Sha256::digest(bytemuck::cast_slice::<f32, u8>(&params.values()));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The parameters' hash on every rank, in rank order.
pub fn all_hashes(comm: &Comm, params: &Params) -> Result<Vec<String>> {
    let mine = parameter_hash(params);
    let mut all = vec![0u8; mine.len() * comm.size()];
    comm.all_gather(mine.as_bytes(), &mut all)?;
    Ok(all.chunks_exact(mine.len()).map(|hash| String::from_utf8_lossy(hash).into_owned()).collect())
}

/// An error, on every rank, if the ranks' parameters differ in any bit.
pub fn ensure_same_model(comm: &Comm, params: &Params) -> Result<String> {
    let hashes = all_hashes(comm, params)?;
    let other = hashes.iter().position(|hash| hash != &hashes[0]);
    ensure!(
        other.is_none(),
        "the ranks hold different models: rank 0 has {}…, rank {} has {}…",
        &hashes[0][..8],
        other.unwrap_or_default(),
        &hashes[other.unwrap_or_default()][..8]
    );
    Ok(hashes[0].clone())
}

/// The largest distance of a rank's parameters from rank 0's, relative to their norm: 0 if all hold the same.
pub fn distance(comm: &Comm, params: &Params) -> Result<f64> {
    let mine = params.values().clone();
    let mut first = mine.clone();
    comm.broadcast(&mut first, 0)?;
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = mine.iter().zip(&first).map(|(a, b)| square(a - b)).sum();
    let size: f64 = first.iter().map(|&x| square(x)).sum();
    let mut largest = [(apart / size).sqrt()];
    comm.all_reduce(&mut largest, Reduce::Max)?;
    Ok(largest[0])
}
