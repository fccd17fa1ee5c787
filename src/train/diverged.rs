//! Training that has diverged: a loss or a gradient is no longer a finite number, and no later step
//! can repair that.

use crate::optim::NotFinite;

/// Training has diverged: a figure is not finite.
#[derive(Debug, thiserror::Error)]
#[error("at step {step}, {what}: training has diverged")]
pub struct Diverged {
    /// The figure and its value.
    pub what: String,
    /// The step, counted from 1.
    pub step: usize,
}

impl Diverged {
    /// Adds the step to the error of a norm that is not finite. Other errors do not change.
    pub fn at(step: usize, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<NotFinite>() {
            Ok(NotFinite(norm)) => Diverged {
                what: format!("the gradients' norm is {norm}, so nothing was updated"),
                step,
            }
            .into(),
            Err(error) => error,
        }
    }
}
