//! lab06-order · The order of one rank
//!
//! A pipeline's ranks hold a stage each. Every micro-batch goes forward through all stages, from rank 0 to the last, and then
//! backward from the last rank to rank 0. A rank keeps a micro-batch's activations from its forward pass until the end of its
//! backward pass.
//!
//! GPipe runs all forward passes first, so each rank keeps the activations of all micro-batches. 1F1B takes as long, and keeps
//! fewer: once micro-batch 0 has come back, a rank runs one forward and one backward pass in turn.
//!
//! - Every rank runs one forward and one backward pass of each micro-batch. Backward passes have the order of forward passes.
//! - A rank never runs more forward passes ahead than it needs to always have work.
//!
//! `Op::forward(0, micro)` is the forward pass of a micro-batch, and `Op::backward(0, micro)` its backward pass. Their first
//! number is the chunk: here each rank has one chunk, 0. The check runs your orders in the library's simulator.

use shardlab::parallel::pipeline::Op;

/// The passes of `rank` in one step, in the order of 1F1B. A backward pass takes about twice as long as a forward pass.
pub fn order(rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    let first = Op::forward(0, 0);
    todo!(
        "{first}, and what follows on rank {rank} of {ranks}, with {micro_batches} micro-batches?"
    )
}
