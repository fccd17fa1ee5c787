//! lab03-replicas · One model, or two?
//!
//! Two ranks train for three steps. In a step they compute their gradients, average them over the ranks, clip the average, and
//! take a step with AdamW. Everything is equal on both ranks, but for one thing on rank 1. Do they hold one model in the end,
//! equal to the last bit, or two? Predict it for A to F. The check trains all six pairs.
//!
//! ```text
//!      rank 1, unlike rank 0, ...                                one model?
//! A    begins with random weights of its own                      true / false
//! B    draws batches of its own                                   true / false
//! C    has half the learning rate                                 true / false
//! D    has batches of one sequence, and not of three              true / false
//! E    loses AdamW's means after the first step                   true / false
//! F    clips its own gradients, before the ranks average theirs   true / false
//! ```

/// Whether both ranks hold the same model in the end, for A to F in this order.
pub fn one_model() -> [bool; 6] {
    todo!("true or false, six times")
}
