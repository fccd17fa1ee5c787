//! lab11-memory · The fullest stage
//!
//! Whether a job runs at all, its fullest rank decides. Under 1F1B, stages with equally many layers
//! are not equally full. Divide the layers so that the fullest rank holds as little as possible:
//!
//! ```text
//! 3 stages, 6 micro-batches; 9 layers, each with 4 GB of state,
//! and 2 GB of activations per micro-batch
//!
//! stage                 0               1               2
//! also has              table 3 GB                      head 3 GB, logits 1 GB
//!
//! equal     layers      3               3               3
//!           a rank      33 GB           24 GB           22 GB
//! best      layers      2               3               4
//!           a rank      23 GB           24 GB           28 GB
//! ```
//!
//! - A layer's state is its parameters, gradients and optimizer, after tensor ranks and ZeRO have
//!   divided them.
//! - A layer keeps a micro-batch's activations from its forward to its backward pass.
//! - Logits are kept from the last stage's forward to its backward pass.
//! - Every stage has at least one layer.

/// A model and its pipeline under 1F1B. All bytes are those of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub layers: usize,
    pub stages: usize,
    /// Micro-batches per replica and step.
    pub micro_batches: usize,
    /// Bytes of a layer's state.
    pub state: u64,
    /// Bytes of a layer's activations for one micro-batch.
    pub kept: u64,
    /// Bytes of the token table's state, on the first stage.
    pub table: u64,
    /// Bytes of the head's state, on the last stage.
    pub head: u64,
    /// Bytes of one micro-batch's logits, on the last stage.
    pub logits: u64,
}

/// What a rank of one stage has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stage {
    pub layers: usize,
    /// The most bytes that it holds during a step.
    pub bytes: u64,
}

/// The stages from first to last.
pub fn balanced(job: &Job) -> Vec<Stage> {
    todo!("{job:?}: how many layers does each stage get?")
}
