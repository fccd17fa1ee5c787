//! lab04-memory · The plan that sends least
//!
//! Which stage of ZeRO should a job use? One that fits: a rank's state and the activations of one
//! micro-batch share one device. And among those the one that sends least. You plan the job before
//! you queue for it.
//!
//! ```text
//! 7.5 billion parameters, 32 blocks of width 4096, sequences of 2048 tokens
//! 64 ranks of 80 GB, no recomputation, 128 sequences per rank and step
//!
//! the plan   stage 1: state 31.4 GB, 5 sequences fit, 29.5 GB sent per step
//! ```
//!
//! - The state is that of mixed precision with AdamW, as on lab04's page. Gradients and parameters
//!   are sent in 2 bytes each.
//! - A block keeps 34 bytes per token and unit of width for the backward pass. With recomputation
//!   every block keeps 2 bytes, its input, and beside all these inputs one block at a time has
//!   its 34.
//! - A rank computes its sequences of one step in as few micro-batches as possible.
//! - If two stages send the same, take the lower one. Padding, buffers and the token table are left
//!   out.

/// A job that is to be planned.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub parameters: u64,
    pub blocks: u64,
    pub width: u64,
    /// Tokens per sequence.
    pub sequence: u64,
    pub ranks: u64,
    /// Sequences that each rank computes in one step.
    pub batch: u64,
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
    /// Sequences per micro-batch: as many as fit, and at most the job's.
    pub sequences: u64,
    /// Bytes that each rank sends per step.
    pub sent: u64,
}

/// The plan that sends least. None if no stage leaves room for a sequence.
pub fn plan(job: &Job) -> Option<Plan> {
    let Job {
        parameters,
        blocks,
        width,
        sequence,
        ranks,
        batch,
        recompute,
        memory,
    } = *job;
    todo!(
        "{parameters} parameters in {blocks} blocks of width {width}, {batch} sequences of {sequence} tokens, {ranks} ranks, \
         {memory} bytes, recomputation: {recompute}"
    )
}
