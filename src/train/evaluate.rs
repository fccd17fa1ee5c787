//! The loss on text that is held still: the same batches at every evaluation, shared out among the ranks.

use crate::comm::{Comm, Reduce};
use crate::data::Sampler;
use crate::model::{Gpt, Pass};
use anyhow::Result;

/// The mean loss over `batches` batches of `text`. Rank r takes batches r, r + N, …; every rank returns the same number,
/// which does not depend on N either: the batches' losses are put side by side before they are added up.
pub fn evaluate(gpt: &Gpt, comm: &Comm, sampler: &Sampler, text: &[u32], batches: usize) -> Result<f64> {
    let mut losses = vec![0f64; batches];
    for i in (comm.rank()..batches).step_by(comm.size()) {
        let batch = sampler.evaluation_batch(text, i);
        losses[i] = f64::from(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
    }
    comm.all_reduce(&mut losses, Reduce::Sum)?;
    Ok(losses.iter().sum::<f64>() / batches as f64)
}
