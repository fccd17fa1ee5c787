//! A whole model from the parts that ranks hold.

use crate::comm::{Comm, Reduce};
use crate::tensor::Params;
use candle_core::{Error, Result};

/// Puts a model together on every rank: `whole` has the parameters that the ranks' `shards` are cut
/// from. `groups` are this rank's groups along those axes of a mesh that shard the model, and
/// `experts` those that share experts.
///
/// # Errors
/// If this rank does not hold its own part in f32, or a collective fails.
pub fn unshard(
    groups: &[&Comm],
    experts: Option<&Comm>,
    shards: &Params,
    whole: &Params,
) -> Result<()> {
    let values = shards.whole()?;
    for spec in whole.specs() {
        let mut sum = vec![0.0; spec.numel()];
        let of_it = shards
            .specs()
            .iter()
            .filter(|shard| shard.whole.name == spec.name && shard.copies.counts());
        for shard in of_it {
            let here = &values[shard.range()];
            shard
                .runs(0..here.len(), |run, at| sum[at..at + run.len()].copy_from_slice(&here[run]));
        }
        // One rank has the element, the others add zeros.
        let experts = experts.filter(|_| spec.whole.part.is_expert());
        for group in groups.iter().copied().chain(experts) {
            group.all_reduce(&mut sum, Reduce::Sum).map_err(Error::wrap)?;
        }
        whole.values_mut()[spec.range()].copy_from_slice(&sum);
    }
    Ok(())
}
