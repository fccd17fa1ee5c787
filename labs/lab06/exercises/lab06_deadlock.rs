//! lab06-deadlock · It hangs on two nodes
//!
//! Broken on purpose: on 1 rank it trains, and on 2 ranks or more it never ends.
//!
//! Between threads, as in these labs, a send does not wait. Between GPUs a large message waits until the other rank receives
//! it. `send` below does so everywhere. A team's pipeline trained well on threads. On GPUs it hangs in its first step, and
//! neither a pass nor a message is missing.
//!
//! ```text
//!  2 ranks, 3 micro-batches
//!             turn 0    turn 1    turn 2    turn 3
//!   rank 0    F0        F1  B0    F2  B1    B2         keeps 2 micro-batches
//!   rank 1    F0  B0    F1  B1    F2  B2               keeps 1
//!
//!  it hangs:  rank 0 in turn 1, and rank 1 in turn 0
//! ```
//!
//! Repair it, and leave `send` and `recv` as they are.
//!
//! - Every rank ends its step, with the gradients of a single rank.
//! - The order of the passes stays. So rank r of n keeps the activations of n - r micro-batches at most.
//! - No rank waits for a message while it has a pass to run, and none lets a rank wait for a result that is there.

use shardlab::Result;
use shardlab::comm::Comm;

/// One rank's layers.
pub trait Stage {
    /// Numbers in one micro-batch's activations, and in their gradient.
    fn width(&self) -> usize;
    /// The activations of a micro-batch behind this stage. The first stage reads the batch itself: its `x` is empty.
    fn forward(&mut self, micro: usize, x: &[f64]) -> Vec<f64>;
    /// The gradient before this stage. The last stage computes the loss itself: its `dy` is empty.
    fn backward(&mut self, micro: usize, dy: &[f64]) -> Vec<f64>;
}

/// The tag of a receipt.
const RECEIPT: u16 = 1;

/// Sends, and waits until rank `to` has received.
fn send(link: &Comm, numbers: &[f64], to: usize) -> Result<()> {
    link.send(numbers, to)?;
    Ok(link.tagged(RECEIPT).recv(&mut [0u8], to)?)
}

/// Waits for a message from rank `from`.
fn recv(link: &Comm, numbers: &mut [f64], from: usize) -> Result<()> {
    link.recv(numbers, from)?;
    Ok(link.tagged(RECEIPT).send(&[0u8], from)?)
}

/// One step of one rank under 1F1B.
///
/// In turn i a rank runs the forward pass of micro-batch i, and the backward pass of micro-batch i - `behind`. Each is left out
/// where there is no such micro-batch.
pub fn step(comm: &Comm, stage: &mut dyn Stage, micro_batches: usize) -> Result<()> {
    let rank = comm.rank();
    let width = stage.width();
    // The ranks behind this one.
    let behind = comm.size() - 1 - rank;
    let activations = comm.labelled("activations");
    let gradients = comm.labelled("gradient");
    for turn in 0..micro_batches + behind {
        if turn < micro_batches {
            let mut x = Vec::new();
            if rank > 0 {
                x.resize(width, 0.0);
                recv(&activations, &mut x, rank - 1)?;
            }
            let y = stage.forward(turn, &x);
            if behind > 0 {
                send(&activations, &y, rank + 1)?;
            }
        }
        if turn >= behind {
            let mut dy = Vec::new();
            if behind > 0 {
                dy.resize(width, 0.0);
                recv(&gradients, &mut dy, rank + 1)?;
            }
            let dx = stage.backward(turn - behind, &dy);
            if rank > 0 {
                send(&gradients, &dx, rank - 1)?;
            }
        }
    }
    Ok(())
}
