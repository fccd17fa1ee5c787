//! The executor runs an algorithm's rounds on real slices, by send and receive. Each collective
//! uses it.

use super::round::{Arrival, Round};
use super::task::{Algorithm, Task};
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

/// Makes means of sums, if means are asked for.
pub fn divide<T: Element>(sums: &mut [T], op: Reduce, ranks: usize) {
    if op == Reduce::Mean {
        for x in sums {
            *x = T::narrow(T::divide(x.widen(), ranks));
        }
    }
}
