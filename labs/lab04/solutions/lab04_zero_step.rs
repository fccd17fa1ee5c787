//! lab04-zero-step · Each rank updates its own slice

use shardlab::comm::{Comm, Reduce, Result};

/// One step of one rank. It leaves `parameters` as an update of all of them with the mean gradients of all ranks would.
///
/// `update(parameters, gradients)` is the optimizer. Call it once per step, with a rank's slice of the parameters and the
/// mean gradients of the same slice.
pub fn step(
    comm: &Comm,
    gradients: &[f32],
    parameters: &mut [f32],
    update: &mut dyn FnMut(&mut [f32], &[f32]),
) -> Result<()> {
    let n = comm.size();
    let rank = comm.rank();
    let len = parameters.len();
    let part = len.div_ceil(n);
    let padded = |numbers: &[f32]| {
        let mut all = numbers.to_vec();
        all.resize(n * part, 0.0);
        all
    };
    let mut mean = vec![0.0; part];
    comm.reduce_scatter(&padded(gradients), &mut mean, Reduce::Mean)?;
    let mut all = padded(parameters);
    let mut mine = all[rank * part..(rank + 1) * part].to_vec();
    update(&mut mine, &mean);
    comm.all_gather(&mine, &mut all)?;
    parameters.copy_from_slice(&all[..len]);
    Ok(())
}
