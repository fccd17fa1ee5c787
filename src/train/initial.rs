//! Where a sharded training begins: at random values, or at an earlier run's.

use crate::checkpoint;
use crate::comm::Comm;
use crate::model::Gpt;
use crate::parallel::zero::{Zero, ZeroConfig};
use anyhow::Result;
use std::path::Path;

/// The initial model. Each rank makes its own slice of it from a random seed, and no rank the
/// whole; or rank 0 reads it from a run's folder, and then it is sharded.
///
/// # Errors
/// If the run's weights cannot be read or are of a different model, or [`Zero::init`] or
/// [`Zero::new`] fails.
pub fn initial(
    gpt: &Gpt,
    comm: &Comm,
    zero: ZeroConfig,
    seed: u64,
    init_from: Option<&Path>,
) -> Result<Zero> {
    let Some(dir) = init_from else {
        return Zero::init(&gpt.params, comm, zero, seed);
    };
    gpt.params.allocate(seed);
    if comm.rank() == 0 {
        checkpoint::load(dir, &gpt.params)?;
    }
    Zero::new(&gpt.params, comm, zero)
}
