//! lab06-deadlock · The gradient that was fetched too early

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
                activations.recv(&mut x, rank - 1)?;
            }
            let y = stage.forward(turn, &x);
            if behind > 0 {
                activations.send(&y, rank + 1)?;
            }
        }
        if turn >= behind {
            // The rank behind needs this rank's forward passes before it has a gradient. All of them are sent now.
            let mut dy = Vec::new();
            if behind > 0 {
                dy.resize(width, 0.0);
                gradients.recv(&mut dy, rank + 1)?;
            }
            let dx = stage.backward(turn - behind, &dy);
            if rank > 0 {
                gradients.send(&dx, rank - 1)?;
            }
        }
    }
    Ok(())
}
