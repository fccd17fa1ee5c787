//! The collectives by any of the library's algorithms, as the library's `algorithms::all_reduce`
//! does one of them.
//!
//! # Errors
//! Those of [`algorithms::run`], and [`CommError::Invalid`] if there is no such algorithm or root,
//! or the slice for all ranks has not the length of their parts.

use shardlab::comm::algorithms::{self, Algorithm, Collective, Task, divide};
use shardlab::comm::{Comm, CommError, Element, Reduce, Result};

/// [`Comm::reduce`] by an algorithm.
#[track_caller]
pub fn reduce<T: Element>(
    comm: &Comm,
    data: &mut [T],
    op: Reduce,
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    // Ranks between the others and the root add up partial sums, which must not overwrite their
    // data.
    let mut sums = data.to_vec();
    execute(comm, (Collective::Reduce, algorithm), data.len(), root, &mut sums, op)?;
    if comm.rank() == root {
        data.copy_from_slice(&sums);
    }
    Ok(())
}

/// [`Comm::broadcast`] by an algorithm.
#[track_caller]
pub fn broadcast<T: Element>(
    comm: &Comm,
    data: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    execute(comm, (Collective::Broadcast, algorithm), data.len(), root, data, Reduce::Sum)
}

/// [`Comm::all_gather`] by an algorithm.
#[track_caller]
pub fn all_gather<T: Element>(
    comm: &Comm,
    mine: &[T],
    all: &mut [T],
    algorithm: Algorithm,
) -> Result<()> {
    ensure_parts(comm, mine.len(), all.len())?;
    all[comm.rank() * mine.len()..][..mine.len()].copy_from_slice(mine);
    execute(comm, (Collective::AllGather, algorithm), mine.len(), 0, all, Reduce::Sum)
}

/// [`Comm::reduce_scatter`] by an algorithm.
#[track_caller]
pub fn reduce_scatter<T: Element>(
    comm: &Comm,
    all: &[T],
    mine: &mut [T],
    op: Reduce,
    algorithm: Algorithm,
) -> Result<()> {
    ensure_parts(comm, mine.len(), all.len())?;
    let mut sums = all.to_vec();
    execute(comm, (Collective::ReduceScatter, algorithm), mine.len(), 0, &mut sums, op)?;
    mine.copy_from_slice(&sums[comm.rank() * mine.len()..][..mine.len()]);
    Ok(())
}

/// [`Comm::scatter`] by an algorithm.
#[track_caller]
pub fn scatter<T: Element>(
    comm: &Comm,
    all: &[T],
    mine: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    let mut parts = vec![T::zeroed(); comm.size() * mine.len()];
    if comm.rank() == root {
        ensure_parts(comm, mine.len(), all.len())?;
        parts.copy_from_slice(all);
        parts.rotate_left(root * mine.len());
    }
    execute(
        comm,
        (Collective::Scatter, algorithm),
        mine.len(),
        root,
        &mut parts,
        Reduce::Sum,
    )?;
    mine.copy_from_slice(&parts[distance(comm, root) * mine.len()..][..mine.len()]);
    Ok(())
}

/// [`Comm::gather`] by an algorithm.
#[track_caller]
pub fn gather<T: Element>(
    comm: &Comm,
    mine: &[T],
    all: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    if comm.rank() == root {
        ensure_parts(comm, mine.len(), all.len())?;
    }
    let mut parts = vec![T::zeroed(); comm.size() * mine.len()];
    parts[distance(comm, root) * mine.len()..][..mine.len()].copy_from_slice(mine);
    execute(comm, (Collective::Gather, algorithm), mine.len(), root, &mut parts, Reduce::Sum)?;
    if comm.rank() == root {
        parts.rotate_right(root * mine.len());
        all.copy_from_slice(&parts);
    }
    Ok(())
}

/// [`Comm::all_to_all`] by an algorithm.
#[track_caller]
pub fn all_to_all<T: Element>(
    comm: &Comm,
    send: &[T],
    recv: &mut [T],
    algorithm: Algorithm,
) -> Result<()> {
    let len = send.len() / comm.size();
    ensure_parts(comm, len, send.len())?;
    ensure_parts(comm, len, recv.len())?;
    let mut both = [send, recv].concat();
    execute(comm, (Collective::AllToAll, algorithm), len, 0, &mut both, Reduce::Sum)?;
    recv.copy_from_slice(&both[send.len()..]);
    let own = comm.rank() * len;
    recv[own..][..len].copy_from_slice(&send[own..][..len]);
    Ok(())
}

/// Runs an algorithm on its buffer. Divides sums by the number of ranks if `op` is the mean.
#[track_caller]
fn execute<T: Element>(
    comm: &Comm,
    (collective, algorithm): (Collective, Algorithm),
    len: usize,
    root: usize,
    buffer: &mut [T],
    op: Reduce,
) -> Result<()> {
    let task = Task::new(collective, algorithm, comm.size(), len, size_of::<T>(), root)?;
    algorithms::run(comm, task.rounds(comm.rank()), buffer, op)?;
    divide(buffer, op, comm.size());
    Ok(())
}

/// This rank's distance from the root, whose part comes first in the buffer of a scatter or a
/// gather.
fn distance(comm: &Comm, root: usize) -> usize {
    (comm.rank() + comm.size() - root) % comm.size()
}

fn ensure_parts(comm: &Comm, part: usize, all: usize) -> Result<()> {
    let ranks = comm.size();
    if part.checked_mul(ranks) == Some(all) {
        return Ok(());
    }
    let why = format!(
        "the slice for all ranks must hold {ranks} ranks x {part} elements, but holds {all}"
    );
    Err(CommError::Invalid { call: None, why })
}
