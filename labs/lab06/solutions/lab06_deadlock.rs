//! lab06-deadlock · It hangs on two nodes

use shardlab::Result;

/// One rank's layers.
pub trait Stage {
    /// Numbers in one micro-batch's activations, and in their gradient.
    fn width(&self) -> usize;
    /// The activations of a micro-batch after this stage. The first stage reads the batch itself:
    /// its `x` is empty.
    fn forward(&mut self, micro: usize, x: &[f64]) -> Vec<f64>;
    /// The gradient before this stage. The last stage computes the loss itself: its `dy` is empty.
    fn backward(&mut self, micro: usize, dy: &[f64]) -> Vec<f64>;
}

/// Carries one kind of message between ranks.
pub trait Link {
    /// Sends, and waits until rank `to` has received.
    fn send(&self, numbers: &[f64], to: usize) -> Result<()>;
    /// Waits for a message from rank `from`.
    fn recv(&self, numbers: &mut [f64], from: usize) -> Result<()>;
}

/// One rank's place in the pipeline, and its links.
pub struct Place<'a> {
    pub rank: usize,
    pub ranks: usize,
    pub activations: &'a dyn Link,
    pub gradients: &'a dyn Link,
}

/// One step of one rank under 1F1B.
///
/// In turn i a rank runs the forward pass of micro-batch i, and the backward pass of micro-batch
/// i - `behind`. Each is left out where there is no such micro-batch.
pub fn step(place: &Place, stage: &mut dyn Stage, micro_batches: usize) -> Result<()> {
    let Place { rank, activations, gradients, .. } = *place;
    let width = stage.width();
    // The ranks after this one.
    let behind = place.ranks - 1 - rank;
    for turn in 0..micro_batches + behind {
        let mut y = Vec::new();
        if turn < micro_batches {
            let mut x = Vec::new();
            if rank > 0 {
                x.resize(width, 0.0);
                activations.recv(&mut x, rank - 1)?;
            }
            y = stage.forward(turn, &x);
        }
        // The rank after this one sends this gradient before it receives the next activations. So
        // take the gradient first.
        let mut dy = Vec::new();
        if turn >= behind && behind > 0 {
            dy.resize(width, 0.0);
            gradients.recv(&mut dy, rank + 1)?;
        }
        if turn < micro_batches && behind > 0 {
            activations.send(&y, rank + 1)?;
        }
        if turn >= behind {
            let dx = stage.backward(turn - behind, &dy);
            if rank > 0 {
                gradients.send(&dx, rank - 1)?;
            }
        }
    }
    Ok(())
}
