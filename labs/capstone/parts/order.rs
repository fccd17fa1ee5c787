//! `lab06-order`: the passes of a pipeline's rank, in order.

use shardlab::parallel::pipeline::{Op, Pipeline, Schedule};

/// Of a rank, the pipeline's ranks, and the micro-batches of a step.
pub type Order = fn(usize, usize, usize) -> Vec<Op>;

/// 1F1B: a backward pass runs as soon as there is one.
pub fn library(rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    ordered(Schedule::OneForwardOneBackward, rank, ranks, micro_batches)
}

/// GPipe: all forward passes, then all backward passes. It trains the same, and keeps more
/// activations.
pub fn without(rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    ordered(Schedule::GPipe, rank, ranks, micro_batches)
}

fn ordered(schedule: Schedule, rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    let pipeline = Pipeline { ranks, chunks: 1, micro_batches };
    schedule.order(&pipeline, rank)
}
