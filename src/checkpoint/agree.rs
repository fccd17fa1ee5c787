//! One rank's error becomes every rank's, so that all ranks do the same next.

use crate::comm::{self, Comm, Reduce};
use crate::error::BadInput;

/// The ranks' results, as every rank sees them: its own value if all ranks have one, or else the
/// error of the first rank that has none. All ranks call it.
///
/// # Errors
/// If the communication fails.
pub fn agree<T>(comm: &Comm, mine: Result<T, BadInput>) -> comm::Result<Result<T, BadInput>> {
    let none = comm.size() as u64;
    let own = if mine.is_err() { comm.rank() as u64 } else { none };
    let first = comm.reduced(own, Reduce::Min)?;
    if first == none {
        return Ok(mine);
    }
    let BadInput { what, help } = mine.err().unwrap_or_else(|| BadInput::new("", ""));
    let what = broadcast_text(comm, what, first as usize)?;
    let help = broadcast_text(comm, help, first as usize)?;
    Ok(Err(BadInput { what, help }))
}

/// The text of rank `root`, on every rank. What other ranks give is not read.
///
/// # Errors
/// If the communication fails.
pub fn broadcast_text(comm: &Comm, text: String, root: usize) -> comm::Result<String> {
    let bytes = broadcast_bytes(comm, text.into_bytes(), root)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes of rank `root`, on every rank. What other ranks give is not read.
///
/// # Errors
/// If the communication fails.
pub fn broadcast_bytes(comm: &Comm, mut bytes: Vec<u8>, root: usize) -> comm::Result<Vec<u8>> {
    let mut length = [bytes.len() as u64];
    comm.broadcast(&mut length, root)?;
    bytes.resize(length[0] as usize, 0);
    comm.broadcast(&mut bytes, root)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch;

    #[test]
    fn every_rank_gets_the_first_ranks_error() {
        let results = launch::run(4, |comm| {
            let mine = |bad: &[usize]| {
                if bad.contains(&comm.rank()) {
                    let what = format!("rank {} failed", comm.rank());
                    return Err(BadInput::new(what, "repair it"));
                }
                Ok(comm.rank())
            };
            Ok([agree(&comm, mine(&[]))?, agree(&comm, mine(&[3, 1]))?])
        });
        for (rank, [good, bad]) in results.unwrap().into_iter().enumerate() {
            assert_eq!(good, Ok(rank));
            assert_eq!(bad, Err(BadInput::new("rank 1 failed", "repair it")));
        }
    }
}
