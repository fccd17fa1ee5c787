//! The collectives by any of the library's algorithms, as the library's `algorithms::all_reduce`
//! does one of them.

use shardlab::comm::algorithms::{self, Algorithm, Collective, Task, divide};
use shardlab::comm::{Comm, CommError, Element, Reduce, Result};

/// A collective by an algorithm. A rank gives one array and gets one, as with [`Comm`]'s own; all
/// is in the second where those work in place. `op` is for collectives that reduce, `root` for
/// those that have one.
///
/// # Errors
/// Those of [`algorithms::run`], and [`CommError::Invalid`] if there is no such algorithm or root,
/// or the slice for all ranks has not the length of their parts.
#[track_caller]
pub fn run<T: Element>(
    comm: &Comm,
    way: (Collective, Algorithm),
    (give, get): (&[T], &mut [T]),
    op: Reduce,
    root: usize,
) -> Result<()> {
    let (rank, ranks) = (comm.rank(), comm.size());
    // The root's part comes first in the buffer of a scatter or a gather, and then those of the
    // ranks after it.
    let from_root = (rank + ranks - root % ranks) % ranks;
    match way.0 {
        Collective::AllReduce => algorithms::all_reduce(comm, get, op, way.1)?,
        Collective::Reduce => {
            // Ranks between the others and the root add up partial sums, which must not overwrite
            // their data.
            let mut sums = get.to_vec();
            execute(comm, way, get.len(), root, &mut sums, op)?;
            if rank == root {
                get.copy_from_slice(&sums);
            }
        }
        Collective::Broadcast => execute(comm, way, get.len(), root, get, Reduce::Sum)?,
        Collective::AllGather => {
            let len = give.len();
            ensure_parts(comm, len, get.len())?;
            get[rank * len..][..len].copy_from_slice(give);
            execute(comm, way, len, 0, get, Reduce::Sum)?;
        }
        Collective::ReduceScatter => {
            let len = get.len();
            ensure_parts(comm, len, give.len())?;
            let mut sums = give.to_vec();
            execute(comm, way, len, 0, &mut sums, op)?;
            get.copy_from_slice(&sums[rank * len..][..len]);
        }
        Collective::Scatter => {
            let len = get.len();
            let mut parts = vec![T::zeroed(); ranks * len];
            if rank == root {
                ensure_parts(comm, len, give.len())?;
                parts.copy_from_slice(give);
                parts.rotate_left(root * len);
            }
            execute(comm, way, len, root, &mut parts, Reduce::Sum)?;
            get.copy_from_slice(&parts[from_root * len..][..len]);
        }
        Collective::Gather => {
            let len = give.len();
            if rank == root {
                ensure_parts(comm, len, get.len())?;
            }
            let mut parts = vec![T::zeroed(); ranks * len];
            parts[from_root * len..][..len].copy_from_slice(give);
            execute(comm, way, len, root, &mut parts, Reduce::Sum)?;
            if rank == root {
                parts.rotate_right(root * len);
                get.copy_from_slice(&parts);
            }
        }
        Collective::AllToAll => {
            let len = give.len() / ranks;
            ensure_parts(comm, len, give.len())?;
            ensure_parts(comm, len, get.len())?;
            let mut both = [give, get].concat();
            execute(comm, way, len, 0, &mut both, Reduce::Sum)?;
            get.copy_from_slice(&both[give.len()..]);
            let own = rank * len;
            get[own..][..len].copy_from_slice(&give[own..][..len]);
        }
    }
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
