//! The gain of a norm: one number for each of a row's. The loop that computes the input's gradient
//! computes the gain's, too, so it is kept until the weights' turn.

use super::operation::rows;
use super::params::{Param, Value};
use candle_core::{Result, bail};
use std::sync::OnceLock;

pub(super) struct Gain {
    param: Param,
    gradient: OnceLock<Vec<f32>>,
}

/// What a norm's backward pass reads: input, gradient of the output, gain, each row's statistics.
/// And what it writes: gradients of the input and of the gain.
pub(super) type Backward<'a, S> =
    (&'a [f32], &'a [f32], &'a [f32], &'a [S], &'a mut Vec<f32>, &'a mut [f32]);

impl Gain {
    pub fn of(param: &Param) -> Gain {
        Gain { param: param.handle(), gradient: OnceLock::new() }
    }

    pub fn value(&self) -> Result<Value<'_>> {
        self.param.value()
    }

    /// The number of rows of an input with dimensions `dims`, and the gain. Refuses rows of a
    /// different width.
    pub fn for_rows(&self, dims: &[usize]) -> Result<(usize, Value<'_>)> {
        let (n, width) = rows(dims)?;
        let gain = self.value()?;
        if gain.len() != width {
            bail!(
                "{} normalises rows of {} numbers, not {dims:?}",
                self.param.spec().name,
                gain.len()
            );
        }
        Ok((n, gain))
    }

    /// Keeps the gradient for [`Gain::add_gradient`].
    pub fn keep(&self, gradient: Vec<f32>) {
        self.gradient.set(gradient).ok();
    }

    /// Adds the kept gradient to the parameter's.
    pub fn add_gradient(&self) -> Result<()> {
        let gradient = self.gradient.get().map(Vec::as_slice).unwrap_or_default();
        self.param.add_gradient(|sum| {
            sum.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient)
        })
    }
}
