//! What ranks send each other in a pass: numbers that travel in its type, and the order of blocks
//! in which they travel.

use crate::comm::{Comm, Result};
use crate::tensor::stored::{by_precision, widen};
use crate::tensor::{Precision, Stored};
use bytemuck::Zeroable;
use half::bf16;

/// All ranks' numbers, which travel in `precision`.
///
/// # Errors
/// If the collective fails.
#[track_caller]
pub fn all_gather(group: &Comm, precision: Precision, mine: &[f32]) -> Result<Vec<f32>> {
    if group.size() == 1 {
        return Ok(mine.to_vec());
    }
    by_precision!(precision, T => Ok(T::widened(group.gathered(&T::narrowed(mine))?)))
}

/// Numbers that travel in `precision`: `sends` of `x` to each rank, one rank's part after the
/// other; `expects` from each, in the same order.
///
/// # Errors
/// If the collective fails.
#[track_caller]
pub(super) fn all_to_all_v(
    group: &Comm,
    precision: Precision,
    x: &[f32],
    sends: &[usize],
    expects: &[usize],
) -> Result<Vec<f32>> {
    by_precision!(precision, T => {
        let mut y = vec![T::zeroed(); expects.iter().sum()];
        group.all_to_all_v(&T::narrowed(x), sends, &mut y, expects)?;
        Ok(T::widened(y))
    })
}

/// Waits for what a started call brings.
pub(super) type Started = Box<dyn FnOnce() -> Result<Vec<f32>> + Send>;

/// Starts an [`all_to_all_v`] that continues while this rank computes.
///
/// # Errors
/// If ranks cannot start it. Those of [`Pending::wait`](crate::comm::Pending::wait) come with the
/// wait.
#[track_caller]
pub(super) fn start_all_to_all_v(
    group: &Comm,
    precision: Precision,
    x: &[f32],
    sends: &[usize],
    expects: &[usize],
) -> Result<Started> {
    by_precision!(precision, T => {
        let pending = group.start_all_to_all_v(T::narrowed(x), sends, expects)?;
        Ok(Box::new(|| {
            let mut y = T::widened(pending.wait()?);
            y.shrink_to_fit(); // it had room for what was sent, too
            Ok(y)
        }))
    })
}

/// Sends `x`, which travels in `precision`.
#[track_caller]
pub(super) fn send(group: &Comm, precision: Precision, x: &[f32], to: usize) -> Result<()> {
    match precision {
        Precision::F32 => group.send(x, to),
        Precision::Bf16 => group.send(&bf16::narrowed(x), to),
    }
}

/// Receives `x`, which travels in `precision`.
#[track_caller]
pub(super) fn recv(group: &Comm, precision: Precision, x: &mut [f32], from: usize) -> Result<()> {
    match precision {
        Precision::F32 => group.recv(x, from)?,
        Precision::Bf16 => {
            let mut narrow = vec![bf16::ZERO; x.len()];
            group.recv(&mut narrow, from)?;
            widen(&narrow, x);
        }
    }
    Ok(())
}

/// Writes `from`, blocks `[a][b]`, to `to` as blocks `[b][a]`.
pub(super) fn exchange_axes<T: Copy>(from: &[T], [a, b]: [usize; 2], to: &mut [T]) {
    let block = (from.len() / (a * b).max(1)).max(1);
    for (i, from) in from.chunks_exact(block).enumerate() {
        let at = (i % b) * a + i / b;
        to[at * block..(at + 1) * block].copy_from_slice(from);
    }
}
