//! lab06-order · One rank's order, over a slow link
//!
//! If messages take no time, 1F1B is as fast as GPipe. Between nodes they take time, and 1F1B
//! becomes slower: a rank has run its forward passes ahead, and its first gradient is still on the
//! way. Write an order that is as fast as GPipe again, and keeps as few activations as that allows.
//!
//! ```text
//!  4 ranks, 8 micro-batches; forward 2 ms, backward 4 ms, a message 3 ms
//!                               a step takes     ranks 0 to 3 keep
//!    GPipe                         84 ms           8   8   8   8
//!    1F1B                         114 ms           4   3   2   1
//!    yours                         84 ms         as few as possible
//! ```
//!
//! - Every rank runs one forward and one backward pass of each micro-batch. Backward passes have
//!   the order of forward passes.
//! - A pass begins when its rank is free and the message that it needs has arrived. Ranks compute
//!   while messages travel.
//!
//! `Op::forward(0, micro)` is the forward pass of a micro-batch, and `Op::backward(0, micro)` its
//! backward pass. Their first number is the chunk: here each rank has one chunk, 0. The check runs
//! your orders in the library's simulator, with the times of the table and then with others.

use shardlab::parallel::pipeline::Op;

/// The times of a forward pass, a backward pass and a message, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub forward: usize,
    pub backward: usize,
    pub message: usize,
}

/// The passes of `rank` in one step, in order.
pub fn order(rank: usize, ranks: usize, micro_batches: usize, times: Times) -> Vec<Op> {
    todo!(
        "{}, and what follows on rank {rank} of {ranks}, with {micro_batches} micro-batches and {times:?}?",
        Op::forward(0, 0)
    )
}
