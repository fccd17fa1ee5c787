//! The executor runs an algorithm's rounds on real slices, by send and receive. Each collective
//! uses it.

use super::round::{Arrival, Round};
use super::task::{Algorithm, Collective, Task};
use crate::comm::{CallKind, Comm, Element, Reduce, Result};

/// Executes `rounds` on `data`.
///
/// A send does not wait for the other side, so ranks never wait for each other in a circle. Sums
/// are in `T`, in an order that depends only on the rounds. Half types are rounded in every round.
/// Ranges of `rounds` count elements of `data`.
///
/// # Errors
/// Those of [`Comm::send`] and [`Comm::recv`].
#[track_caller]
pub fn run<T: Element>(
    comm: &Comm,
    rounds: impl IntoIterator<Item = Round>,
    data: &mut [T],
    op: Reduce,
) -> Result<()> {
    let mut incoming = Vec::new();
    for round in rounds {
        if let Some(send) = round.send {
            comm.send(&data[send.range], send.to)?;
        }
        let Some(recv) = round.recv else { continue };
        let mine = &mut data[recv.range];
        match recv.arrival {
            Arrival::Replace => comm.recv(mine, recv.from)?,
            Arrival::Combine => {
                incoming.resize(mine.len(), T::zeroed());
                comm.recv(&mut incoming, recv.from)?;
                combine(op, mine, &incoming, recv.from < comm.rank());
            }
        }
    }
    Ok(())
}

/// `mine[i] = mine[i] op other[i]`, or `other[i] op mine[i]` if `other_first`.
///
/// The lower rank's numbers come first on both sides of an exchange, so that partners with the same
/// numbers get the same bits.
fn combine<T: Element>(op: Reduce, mine: &mut [T], other: &[T], other_first: bool) {
    for (x, y) in mine.iter_mut().zip(other) {
        let (a, b) = if other_first {
            (y.widen(), x.widen())
        } else {
            (x.widen(), y.widen())
        };
        *x = T::narrow(T::combine(op, a, b));
    }
}

/// [`Comm::all_reduce`] by an algorithm of this room, or by two: with an algorithm for trees or
/// chains, a reduction to rank 0 and a broadcast from there. All ranks end with the same bits, in
/// every run.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::all_reduce`] or if there is no such algorithm.
#[track_caller]
pub fn all_reduce<T: Element>(
    comm: &Comm,
    data: &mut [T],
    op: Reduce,
    algorithm: Algorithm,
) -> Result<()> {
    comm.describe::<T>(CallKind::AllReduce, data.len(), Some(op), None)?;
    for task in Task::of_all_reduce(algorithm, comm.size(), data.len(), size_of::<T>())? {
        run(comm, task.rounds(comm.rank()), data, op)?;
    }
    divide(data, op, comm.size());
    Ok(())
}

/// [`Comm::reduce`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::reduce`] or if there is no such algorithm.
#[track_caller]
pub fn reduce<T: Element>(
    comm: &Comm,
    data: &mut [T],
    op: Reduce,
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    comm.describe::<T>(CallKind::Reduce, data.len(), Some(op), Some(root))?;
    // Ranks between the others and the root add up partial sums, which must not overwrite their
    // data.
    let mut sums = data.to_vec();
    execute(comm, (Collective::Reduce, algorithm), data.len(), root, &mut sums, op)?;
    if comm.rank() == root {
        data.copy_from_slice(&sums);
    }
    Ok(())
}

/// [`Comm::broadcast`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::broadcast`] or if there is no such algorithm.
#[track_caller]
pub fn broadcast<T: Element>(
    comm: &Comm,
    data: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    execute(comm, (Collective::Broadcast, algorithm), data.len(), root, data, Reduce::Sum)
}

/// [`Comm::all_gather`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::all_gather`] or if there is no such algorithm.
#[track_caller]
pub fn all_gather<T: Element>(
    comm: &Comm,
    mine: &[T],
    all: &mut [T],
    algorithm: Algorithm,
) -> Result<()> {
    comm.check_parts(&comm.describe::<T>(CallKind::AllGather, mine.len(), None, None)?, all.len())?;
    all[comm.rank() * mine.len()..][..mine.len()].copy_from_slice(mine);
    execute(comm, (Collective::AllGather, algorithm), mine.len(), 0, all, Reduce::Sum)
}

/// [`Comm::reduce_scatter`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::reduce_scatter`] or if there is no such algorithm.
#[track_caller]
pub fn reduce_scatter<T: Element>(
    comm: &Comm,
    all: &[T],
    mine: &mut [T],
    op: Reduce,
    algorithm: Algorithm,
) -> Result<()> {
    comm.check_parts(
        &comm.describe::<T>(CallKind::ReduceScatter, mine.len(), Some(op), None)?,
        all.len(),
    )?;
    let mut sums = all.to_vec();
    execute(comm, (Collective::ReduceScatter, algorithm), mine.len(), 0, &mut sums, op)?;
    mine.copy_from_slice(&sums[comm.rank() * mine.len()..][..mine.len()]);
    Ok(())
}

/// [`Comm::scatter`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::scatter`] or if there is no such algorithm.
#[track_caller]
pub fn scatter<T: Element>(
    comm: &Comm,
    all: &[T],
    mine: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    let call = comm.describe::<T>(CallKind::Scatter, mine.len(), None, Some(root))?;
    let mut parts = vec![T::zeroed(); comm.size() * mine.len()];
    if comm.rank() == root {
        comm.check_parts(&call, all.len())?;
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

/// [`Comm::gather`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::gather`] or if there is no such algorithm.
#[track_caller]
pub fn gather<T: Element>(
    comm: &Comm,
    mine: &[T],
    all: &mut [T],
    root: usize,
    algorithm: Algorithm,
) -> Result<()> {
    let call = comm.describe::<T>(CallKind::Gather, mine.len(), None, Some(root))?;
    if comm.rank() == root {
        comm.check_parts(&call, all.len())?;
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

/// [`Comm::all_to_all`] by an algorithm of this room.
///
/// # Errors
/// Those of [`run`], and [`CommError::Invalid`](crate::comm::CommError::Invalid) as for
/// [`Comm::all_to_all`] or if there is no such algorithm.
#[track_caller]
pub fn all_to_all<T: Element>(
    comm: &Comm,
    send: &[T],
    recv: &mut [T],
    algorithm: Algorithm,
) -> Result<()> {
    let call = comm.describe::<T>(CallKind::AllToAll, send.len() / comm.size(), None, None)?;
    comm.check_parts(&call, send.len())?;
    comm.check_parts(&call, recv.len())?;
    let mut both = [send, recv].concat();
    execute(comm, (Collective::AllToAll, algorithm), call.len, 0, &mut both, Reduce::Sum)?;
    recv.copy_from_slice(&both[send.len()..]);
    let own = comm.rank() * call.len;
    recv[own..][..call.len].copy_from_slice(&send[own..][..call.len]);
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
    run(comm, task.rounds(comm.rank()), buffer, op)?;
    divide(buffer, op, comm.size());
    Ok(())
}

/// Makes means of sums, if means are asked for.
fn divide<T: Element>(sums: &mut [T], op: Reduce, ranks: usize) {
    if op == Reduce::Mean {
        for x in sums {
            *x = T::narrow(T::divide(x.widen(), ranks));
        }
    }
}

/// This rank's distance from the root, whose part comes first in the buffer of a scatter or a
/// gather.
fn distance(comm: &Comm, root: usize) -> usize {
    (comm.rank() + comm.size() - root) % comm.size()
}
