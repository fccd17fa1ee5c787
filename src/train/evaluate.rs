//! The loss on text that is held still: the same batches at every evaluation, shared out among the ranks.

use crate::comm::{Comm, Reduce};
use crate::data::Sampler;
use crate::model::{Gpt, Pass};
use anyhow::Result;

/// The mean loss over `batches` batches of `text`. Rank r takes batches r, r + N, …; every rank returns the same number,
/// which does not depend on N either: the batches' losses are put side by side before they are added up. All ranks make
/// equally many passes, in which they may gather parameters; what a rank computes beyond the last batch is not counted.
pub fn evaluate(gpt: &Gpt, comm: &Comm, sampler: &Sampler, text: &[u32], batches: usize) -> Result<f64> {
    let mut losses = vec![0f64; batches];
    for turn in 0..batches.div_ceil(comm.size()) {
        let i = turn * comm.size() + comm.rank();
        let batch = sampler.evaluation_batch(text, i);
        let loss = f64::from(gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?);
        if let Some(place) = losses.get_mut(i) {
            *place = loss;
        }
    }
    comm.all_reduce(&mut losses, Reduce::Sum)?;
    Ok(losses.iter().sum::<f64>() / batches as f64)
}
