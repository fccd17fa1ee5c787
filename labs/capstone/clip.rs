//! Between the gradients and the optimizer: one norm, the loss scale, and one factor for all
//! gradients.

use crate::parts::Parts;
use crate::parts::scaler::Scaler;
use anyhow::Result;
use shardlab::comm::Comm;

/// What the optimizer does with a step's gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipped {
    /// The norm without the loss scale, before clipping.
    pub norm: f64,
    /// The factor for all gradients.
    pub factor: f32,
}

/// Gradients that ranks share: this rank's own, which padding follows, and those that every rank
/// has.
pub struct Gradients<'a> {
    pub shard: &'a [f32],
    pub padding: usize,
    pub replicated: &'a [f32],
}

/// Measures the gradients of all ranks of `comm`, and asks the scaler what to do. None: the step is
/// not taken.
pub fn clip(
    parts: &Parts,
    comm: &Comm,
    gradients: &Gradients,
    scaler: &mut Scaler,
    clip: f64,
) -> Result<Option<Clipped>> {
    let Gradients { shard, padding, replicated } = *gradients;
    let norm = (parts.norm)(comm, shard, padding, replicated)?;
    // No rank has all gradients. So the scaler gets a vector that is as long as all of them
    // together: of one number. What it does to this number is done to all gradients.
    let long = norm.unwrap_or(f64::INFINITY) as f32;
    let mut number = [long];
    let norm = (parts.scaler)(scaler, &mut number, clip);
    let factor = if long == 0.0 { 0.0 } else { number[0] / long };
    Ok(norm.map(|norm| Clipped { norm, factor }))
}
