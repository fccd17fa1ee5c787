//! The executor: an algorithm's rounds on real slices, by send and receive; and each collective on top of it.

use super::round::{Arrival, Round};
use super::task::{Algorithm, Collective, Task};
use crate::comm::{Comm, Element, Kind, Reduce, Result, check_mean};

/// Does with `data` what `rounds` say.
///
/// A send does not wait for the other side, so no order of rounds makes ranks wait for each other. Sums are made in `T`, in
/// an order that depends only on the rounds: half types are rounded in each.
#[track_caller]
pub fn run<T: Element>(comm: &Comm, rounds: impl IntoIterator<Item = Round>, data: &mut [T], op: Reduce) -> Result<()> {
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

/// `mine[i] = mine[i] op other[i]`, or `other[i] op mine[i]` if the other's come first.
///
/// The lower rank's come first on both sides of an exchange, so that partners who add the same get the same bits.
fn combine<T: Element>(op: Reduce, mine: &mut [T], other: &[T], other_first: bool) {
    for (x, y) in mine.iter_mut().zip(other) {
        let (a, b) = if other_first { (y.widen(), x.widen()) } else { (x.widen(), y.widen()) };
        *x = T::narrow(T::combine(op, a, b));
    }
}

/// Makes sums means, where means are wanted.
fn divide<T: Element>(op: Reduce, sums: &mut [T], ranks: usize) {
    if op == Reduce::Mean {
        sums.iter_mut().for_each(|x| *x = T::narrow(T::divide(x.widen(), ranks)));
    }
}

/// [`Comm::all_reduce`] by an algorithm of this room. All ranks end with the same bits, in every run.
#[track_caller]
pub fn all_reduce<T: Element>(comm: &Comm, data: &mut [T], op: Reduce, algorithm: Algorithm) -> Result<()> {
    check_mean(&comm.call::<T>(Kind::AllReduce, data.len(), Some(op), None))?;
    let task = task::<T>(comm, Collective::AllReduce, algorithm, data.len(), 0)?;
    run(comm, task.rounds(comm.rank()), data, op)?;
    divide(op, data, comm.size());
    Ok(())
}

/// [`Comm::reduce`] by an algorithm of this room.
#[track_caller]
pub fn reduce<T: Element>(comm: &Comm, data: &mut [T], op: Reduce, root: usize, algorithm: Algorithm) -> Result<()> {
    check_mean(&comm.call::<T>(Kind::Reduce, data.len(), Some(op), Some(root)))?;
    let task = task::<T>(comm, Collective::Reduce, algorithm, data.len(), root)?;
    // What other ranks add up on the way is not theirs to keep.
    let mut sums = data.to_vec();
    run(comm, task.rounds(comm.rank()), &mut sums, op)?;
    if comm.rank() == root {
        divide(op, &mut sums, comm.size());
        data.copy_from_slice(&sums);
    }
    Ok(())
}

/// [`Comm::broadcast`] by an algorithm of this room.
#[track_caller]
pub fn broadcast<T: Element>(comm: &Comm, data: &mut [T], root: usize, algorithm: Algorithm) -> Result<()> {
    let task = task::<T>(comm, Collective::Broadcast, algorithm, data.len(), root)?;
    run(comm, task.rounds(comm.rank()), data, Reduce::Sum)
}

/// [`Comm::all_gather`] by an algorithm of this room.
#[track_caller]
pub fn all_gather<T: Element>(comm: &Comm, mine: &[T], all: &mut [T], algorithm: Algorithm) -> Result<()> {
    comm.check_parts(&comm.call::<T>(Kind::AllGather, mine.len(), None, None), all.len())?;
    let task = task::<T>(comm, Collective::AllGather, algorithm, mine.len(), 0)?;
    all[comm.rank() * mine.len()..][..mine.len()].copy_from_slice(mine);
    run(comm, task.rounds(comm.rank()), all, Reduce::Sum)
}

/// [`Comm::reduce_scatter`] by an algorithm of this room.
#[track_caller]
pub fn reduce_scatter<T: Element>(
    comm: &Comm,
    all: &[T],
    mine: &mut [T],
    op: Reduce,
    algorithm: Algorithm,
) -> Result<()> {
    let call = comm.call::<T>(Kind::ReduceScatter, mine.len(), Some(op), None);
    check_mean(&call)?;
    comm.check_parts(&call, all.len())?;
    let task = task::<T>(comm, Collective::ReduceScatter, algorithm, mine.len(), 0)?;
    let mut sums = all.to_vec();
    run(comm, task.rounds(comm.rank()), &mut sums, op)?;
    mine.copy_from_slice(&sums[comm.rank() * mine.len()..][..mine.len()]);
    divide(op, mine, comm.size());
    Ok(())
}

/// [`Comm::scatter`] by an algorithm of this room.
#[track_caller]
pub fn scatter<T: Element>(comm: &Comm, all: &[T], mine: &mut [T], root: usize, algorithm: Algorithm) -> Result<()> {
    let task = task::<T>(comm, Collective::Scatter, algorithm, mine.len(), root)?;
    let place = root_first(comm, root);
    let mut parts = vec![T::zeroed(); task.buffer()];
    if comm.rank() == root {
        comm.check_parts(&comm.call::<T>(Kind::Scatter, mine.len(), None, Some(root)), all.len())?;
        parts.copy_from_slice(all);
        parts.rotate_left(root * mine.len());
    }
    run(comm, task.rounds(comm.rank()), &mut parts, Reduce::Sum)?;
    mine.copy_from_slice(&parts[place * mine.len()..][..mine.len()]);
    Ok(())
}

/// [`Comm::gather`] by an algorithm of this room.
#[track_caller]
pub fn gather<T: Element>(comm: &Comm, mine: &[T], all: &mut [T], root: usize, algorithm: Algorithm) -> Result<()> {
    let task = task::<T>(comm, Collective::Gather, algorithm, mine.len(), root)?;
    if comm.rank() == root {
        comm.check_parts(&comm.call::<T>(Kind::Gather, mine.len(), None, Some(root)), all.len())?;
    }
    let mut parts = vec![T::zeroed(); task.buffer()];
    parts[root_first(comm, root) * mine.len()..][..mine.len()].copy_from_slice(mine);
    run(comm, task.rounds(comm.rank()), &mut parts, Reduce::Sum)?;
    if comm.rank() == root {
        parts.rotate_right(root * mine.len());
        all.copy_from_slice(&parts);
    }
    Ok(())
}

/// [`Comm::all_to_all`] by an algorithm of this room.
#[track_caller]
pub fn all_to_all<T: Element>(comm: &Comm, send: &[T], recv: &mut [T], algorithm: Algorithm) -> Result<()> {
    let call = comm.call::<T>(Kind::AllToAll, send.len() / comm.size(), None, None);
    comm.check_parts(&call, send.len())?;
    comm.check_parts(&call, recv.len())?;
    let task = task::<T>(comm, Collective::AllToAll, algorithm, call.len, 0)?;
    let mut both = [send, recv].concat();
    run(comm, task.rounds(comm.rank()), &mut both, Reduce::Sum)?;
    recv.copy_from_slice(&both[send.len()..]);
    let own = comm.rank() * call.len;
    recv[own..][..call.len].copy_from_slice(&send[own..][..call.len]);
    Ok(())
}

fn task<T: Element>(
    comm: &Comm,
    collective: Collective,
    algorithm: Algorithm,
    len: usize,
    root: usize,
) -> Result<Task> {
    Task::new(collective, algorithm, comm.size(), len, size_of::<T>(), root)
}

/// This rank's place when ranks are counted from the root on.
fn root_first(comm: &Comm, root: usize) -> usize {
    (comm.rank() + comm.size() - root) % comm.size()
}
