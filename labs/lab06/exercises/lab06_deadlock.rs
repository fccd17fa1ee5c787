//! lab06-deadlock · The gradient that was fetched too early
//!
//! Broken on purpose: on 1 rank it trains, and on 2 ranks or more it never ends.
//!
//! A team's pipeline trained well. Then a profile showed that ranks wait for gradients. So a colleague moved the line that
//! receives a gradient: "fetch it one turn early, then it is there when the backward pass needs it". Since then no step ends.
//! `send` does not wait for the other rank, and `recv` waits until the message is there. Neither line looks wrong.
//!
//! Repair it: find the place for the receive.
//!
//! - Every rank ends its step, with the gradients of a single rank.
//! - A rank waits for a gradient only if it has nothing to compute or to send before.
//! - Rank r of n keeps the activations of n - r micro-batches at most, as before.

use shardlab::Result;
use shardlab::comm::Comm;
use std::collections::VecDeque;

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
    let mut fetched = VecDeque::new();
    for turn in 0..micro_batches + behind {
        if behind > 0 && (behind..micro_batches + behind).contains(&(turn + 1)) {
            let mut dy = vec![0.0; width];
            gradients.recv(&mut dy, rank + 1)?;
            fetched.push_back(dy);
        }
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
            let dy = fetched.pop_front().unwrap_or_default();
            let dx = stage.backward(turn - behind, &dy);
            if rank > 0 {
                gradients.send(&dx, rank - 1)?;
            }
        }
    }
    Ok(())
}
