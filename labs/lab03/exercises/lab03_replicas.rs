//! lab03-replicas · One model, or two?
//!
//! Two ranks begin with equal weights. A step is: gradients, average, clipping, AdamW. One of these
//! differences makes two models. Which?
//!
//! ```text
//!      on rank 1 only
//! A    gradients are 0 before the average
//! B    gradients are also clipped before the average
//! C    AdamW has no weight decay
//! D    batches have one sequence, not three
//! ```

/// A letter of the picture.
pub fn two_models() -> char {
    todo!("for instance 'A'")
}
