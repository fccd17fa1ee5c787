//! The bytes that ranks of an MPI job send, which its library does not count.

use crate::comm::call::{Call, CallKind};
use crate::comm::meter::even_part;

/// The bytes that `rank` of `size` has to send in a call, for a transport that does not count them.
///
/// A reduction is a reduce-scatter and an all-gather, and all other data goes directly from the
/// rank that has it to the rank that needs it. An MPI library may take different ways, which it
/// does not report.
pub(in crate::comm) fn by_calls(call: &Call, rank: usize, size: usize) -> u64 {
    let others = size - 1;
    let bytes = call.len * call.dtype.size();
    let is_peer = call.peer.is_some_and(|peer| peer.rank == rank);
    let sent = match call.kind.collective() {
        // A color and a key.
        CallKind::Split => others * 16,
        CallKind::AllReduce => {
            let mine = even_part(call.len, rank, size).len() * call.dtype.size();
            bytes - mine + others * mine
        }
        CallKind::AllGather | CallKind::ReduceScatter | CallKind::AllToAll => others * bytes,
        CallKind::Broadcast | CallKind::Scatter if is_peer => others * bytes,
        CallKind::Reduce | CallKind::Gather | CallKind::Send if !is_peer => bytes,
        _ => 0,
    };
    sent as u64
}
