//! Evaluates a model: its loss on fixed batches.

use crate::comm::{Comm, Reduce};
use crate::data::Sampler;
use crate::model::{Gpt, Pass};
use anyhow::Result;

/// The mean loss over `batches` batches of `text`, which are the same at every evaluation.
///
/// Rank r of N ranks takes batches r, r + N, and so on. Every rank returns the same number. It does
/// not depend on N, because the losses of all batches are collected before they are added up. All
/// ranks make the same number of passes, in which they may gather parameters. Passes beyond the
/// last batch do not count.
///
/// # Errors
/// If a forward pass or a collective fails.
pub fn evaluate(
    gpt: &Gpt,
    comm: &Comm,
    sampler: &Sampler,
    text: &[u32],
    batches: usize,
) -> Result<f64> {
    let mut losses = vec![0f64; batches];
    for pass in 0..batches.div_ceil(comm.size()) {
        let i = pass * comm.size() + comm.rank();
        let batch = sampler.evaluation_batch(text, i);
        let loss = f64::from(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
        if let Some(slot) = losses.get_mut(i) {
            *slot = loss;
        }
    }
    comm.all_reduce(&mut losses, Reduce::Sum)?;
    Ok(losses.iter().sum::<f64>() / batches as f64)
}
