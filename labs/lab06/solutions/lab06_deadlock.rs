//! lab06-deadlock · It hangs on two nodes

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
        let mut y = Vec::new();
        if turn < micro_batches {
            let mut x = Vec::new();
            if rank > 0 {
                x.resize(width, 0.0);
                recv(&activations, &mut x, rank - 1)?;
            }
            y = stage.forward(turn, &x);
        }
        // The rank behind sends this gradient before it receives the next activations. So take the gradient first.
        let mut dy = Vec::new();
        if turn >= behind && behind > 0 {
            dy.resize(width, 0.0);
            recv(&gradients, &mut dy, rank + 1)?;
        }
        if turn < micro_batches && behind > 0 {
            send(&activations, &y, rank + 1)?;
        }
        if turn >= behind {
            let dx = stage.backward(turn - behind, &dy);
            if rank > 0 {
                send(&gradients, &dx, rank - 1)?;
            }
        }
    }
    Ok(())
}
