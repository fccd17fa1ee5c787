//! lab06-bubble · A step on paper
//!
//! Three ranks hold a third of the layers each. A step has six micro-batches. A forward pass through a third takes 1 ms, a
//! backward pass 2 ms, and messages take no time. Under GPipe the step begins like this:
//!
//! ```text
//!      ms   0  1  2  3  4  5  6  …               ?
//!  rank 0 │ F0 F1 F2 F3 F4 F5    …               │
//!  rank 1 │    F0 F1 F2 F3 F4 F5 …               │   waits ? ms, keeps ?
//!  rank 2 │       F0 F1 F2 F3 F4 …               │
//! ```
//!
//! Draw the rest, or count without drawing.

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
    todo!("Answers {{ step: 0, waits: 0, kept: 0, kept_1f1b: 0 }}, with your numbers")
}
