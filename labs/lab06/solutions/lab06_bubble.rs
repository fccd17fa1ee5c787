//! lab06-bubble · A step on paper

/// The step's four numbers. Times are in milliseconds.
pub struct Answers {
    /// From the first forward pass to the end of the last backward pass.
    pub step: u64,
    /// How long rank 1 waits in this time, all waits together.
    pub waits: u64,
    /// The most micro-batches whose activations rank 1 keeps at once.
    pub kept: u64,
    /// The same under 1F1B.
    pub kept_1f1b: u64,
}

pub fn answers() -> Answers {
    // Six micro-batches, and two more turns until the last rank has begun and the first one has ended: 8 times 3 ms.
    Answers {
        step: 24,
        waits: 24 - 18,
        kept: 6,
        kept_1f1b: 2,
    }
}
