//! lab04-memory · Does it fit into 80 GB?
//!
//! A rank has a device with a fixed memory. Two things must fit at once: the state (parameters, gradients, optimizer), which
//! ZeRO can shard, and the activations of one micro-batch, which it cannot. You plan the job before you queue for it.
//!
//! - The state is that of mixed precision: 2 bytes per parameter, 2 per gradient, and 12 for the optimizer's master copy and
//!   two moments. Stage 1 shards the optimizer's 12 bytes, stage 2 also the gradients, stage 3 also the parameters. A shard
//!   is 1/n on n ranks.
//! - Attention keeps no scores. So each block keeps 34 bytes per token and unit of width, for the whole micro-batch.
//! - With recomputation each block keeps only its input, 2 bytes, and one block at a time has all its 34.
//!
//! Choose the lowest stage with which at least one sequence fits: lower stages send less. Then take as many sequences per
//! micro-batch as fit. Padding, buffers and the token table are left out.

/// A job that is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub parameters: u64,
    pub blocks: u64,
    pub width: u64,
    /// Tokens per sequence.
    pub sequence: u64,
    pub ranks: u64,
    /// Whether the backward pass recomputes the activations of each block.
    pub recompute: bool,
    /// Bytes of each rank's device.
    pub memory: u64,
}

/// How the job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// ZeRO's stage, 0 to 3.
    pub stage: usize,
    /// Bytes of parameters, gradients and optimizer state on each rank.
    pub state: u64,
    /// Sequences per micro-batch.
    pub sequences: u64,
}

/// The plan with the lowest stage. None if no stage leaves room for a sequence.
pub fn plan(job: &Job) -> Option<Plan> {
    let Job {
        parameters,
        blocks,
        width,
        sequence,
        ranks,
        recompute,
        memory,
    } = *job;
    todo!(
        "{parameters} parameters in {blocks} blocks of width {width}, sequences of {sequence} tokens, {ranks} ranks, \
         {memory} bytes, recomputation: {recompute}"
    )
}
