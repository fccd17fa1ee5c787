//! lab04-norm · One norm for sharded gradients
//!
//! Clipping shortens all gradients by one factor. The factor follows from their norm: the root of
//! the sum of all squares. Under ZeRO each rank holds only a shard of the gradients, but all ranks
//! need the same norm. If their norms differ, each rank clips its shard by a different factor.
//!
//! ```text
//! 2 ranks, gradients 2, 4, 5 and 2; "·" is padding
//!
//!               rank 0         rank 1
//! shard         [2  4]         [5  ·]
//! padding       0              1
//! replicated    [2]            [2]
//! returns       Some(7.0)      Some(7.0)
//! ```
//!
//! Two details matter. Some small parameters are replicated: every rank holds their averaged
//! gradients, and the model has these parameters once. A shard can end in padding: numbers that
//! belong to no parameter. They are not always 0.
//!
//! A norm that is NaN or infinite means that a gradient is. Then all ranks must skip the step: a
//! rank that takes it by itself has a different model from then on. So every rank needs the same
//! answer, even if only one rank holds the NaN.
//!
//! `comm.all_reduce(&mut numbers, how)` combines all ranks' `numbers` element by element, and
//! leaves the result in every rank's `numbers`. They can be f32 or f64.

use shardlab::comm::{Comm, Reduce, Result};

/// One rank's gradients.
#[derive(Clone, Copy, Debug)]
pub struct Gradients<'a> {
    /// This rank's shard. Its last `padding` numbers are padding.
    pub shard: &'a [f32],
    pub padding: usize,
    /// The gradients of the replicated parameters, the same on every rank.
    pub replicated: &'a [f32],
}

/// The norm of all gradients of the model, the same on every rank. None if it is not finite: then
/// every rank skips the step.
pub fn global_norm(comm: &Comm, gradients: &Gradients) -> Result<Option<f64>> {
    let Gradients { shard, padding, replicated } = *gradients;
    todo!(
        "{:?} over {} ranks: of {} sharded numbers, {padding} of them padding, and {} replicated numbers",
        Reduce::Sum,
        comm.size(),
        shard.len(),
        replicated.len()
    )
}
