//! What a transport must do: move bytes between the ranks of one group.

use super::meter::Meter;
use super::pending::{Buffer, UnderWay};
use super::recorder::Recorder;
use super::{Call, Result};
use std::sync::Arc;

/// One rank's place in one group of ranks, over threads or over MPI.
///
/// [`Comm`](super::Comm) checks arguments before it calls these, so an implementation may rely on valid roots and on
/// lengths that fit; `call` names element type, length, reduction and root. Slices are the elements' bytes.
/// Reductions combine in rank order where the transport can promise it.
pub(super) trait Transport: Send + Sync {
    fn rank(&self) -> usize;
    fn size(&self) -> usize;
    fn meter(&self) -> &Meter;
    fn recorder(&self) -> &Recorder;

    fn barrier(&self, call: &Call) -> Result<()>;
    /// Buffered: returns before the other side receives.
    fn send(&self, call: &Call, data: &[u8], to: usize) -> Result<()>;
    fn recv(&self, call: &Call, data: &mut [u8], from: usize) -> Result<()>;
    fn all_reduce(&self, call: &Call, data: &mut [u8]) -> Result<()>;
    /// Starts what the call names (all-reduce, reduce, all-gather, reduce-scatter) with a vector that is handed over. To the
    /// last two, it brings one part for each rank.
    fn start(self: Arc<Self>, call: &Call, data: Box<dyn Buffer>) -> Result<Box<dyn UnderWay>>;
    fn reduce(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()>;
    fn broadcast(&self, call: &Call, data: &mut [u8], root: usize) -> Result<()>;
    fn all_gather(&self, call: &Call, mine: &[u8], all: &mut [u8]) -> Result<()>;
    fn reduce_scatter(&self, call: &Call, all: &[u8], mine: &mut [u8]) -> Result<()>;
    /// `all` is empty except on the root.
    fn scatter(&self, call: &Call, all: &[u8], mine: &mut [u8], root: usize) -> Result<()>;
    /// `all` is empty except on the root.
    fn gather(&self, call: &Call, mine: &[u8], all: &mut [u8], root: usize) -> Result<()>;
    fn all_to_all(&self, call: &Call, send: &[u8], recv: &mut [u8]) -> Result<()>;
    /// The new group's transport for this rank: ranks of equal `color`, ordered by `key`, then by rank.
    fn split(&self, call: &Call, color: u64, key: i64) -> Result<Arc<dyn Transport>>;
}
