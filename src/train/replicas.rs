//! Compares the ranks' models by their hashes.

use crate::comm::Comm;
use crate::sha256;
use crate::tensor::Params;
use anyhow::Result;

/// The SHA-256 of all parameters' bits, in the flat layout, on every rank: hexadecimal digits, in
/// rank order.
///
/// # Errors
/// If this rank does not hold all parameters in f32, or the all-gather fails.
pub fn all_hashes(comm: &Comm, params: &Params) -> Result<Vec<String>> {
    let mine = sha256::hex(bytemuck::cast_slice(&params.whole()?));
    Ok(comm
        .gathered(mine.as_bytes())?
        .chunks_exact(mine.len())
        .map(|hash| String::from_utf8_lossy(hash).into_owned())
        .collect())
}
