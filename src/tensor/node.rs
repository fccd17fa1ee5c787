//! The way between candle's graph and the tape: whatever runs on a tape is one node of the graph,
//! whose backward pass reads the tape.
//!
//! Models train without it. It is for those who mix candle's operations with the library's, and for
//! `loss.backward()`, as candle's users write it.

use super::operation::{Operand, TensorOp, read};
use super::tape::Activation;
use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor, Var, bail};
use std::sync::{Mutex, PoisonError};

/// Applies `layers` to `x`, as one node of candle's graph if `x` depends on a variable.
///
/// # Errors
/// If `x` is not f32 on the CPU, or `layers` fails.
pub fn node(x: &Tensor, layers: impl FnOnce(&Activation) -> Result<Activation>) -> Result<Tensor> {
    let numbers = read(x, |x| Ok(x.to_vec()))?;
    if !x.track_op() {
        return plain(layers(&Activation::new(numbers, x.shape())?)?);
    }
    let start = Activation::start(numbers, x.shape())?;
    let y = layers(&start)?;
    joined(x, Some(start.emptied()), y)
}

/// `y` as a tensor, with its tape as one node of candle's graph.
///
/// # Errors
/// Those of candle.
pub fn root(y: Activation) -> Result<Tensor> {
    if !y.is_recorded() {
        return plain(y);
    }
    // candle visits in its backward pass what is above a variable. This one takes no part in the
    // arithmetic.
    let anchor = Var::zeros((), DType::F32, &Device::Cpu)?;
    joined(&anchor, None, y)
}

/// `y` as a tensor without a graph.
fn plain(y: Activation) -> Result<Tensor> {
    let shape = y.shape().clone();
    Tensor::from_vec(y.into_numbers(), shape, &Device::Cpu)
}

/// Moves `y` into a node above `x`, at which its tape starts, if it does.
fn joined(x: &Tensor, start: Option<Activation>, y: Activation) -> Result<Tensor> {
    let end = y.clone().emptied();
    let shape = y.shape().clone();
    let result = Mutex::new(Some((y.into_numbers(), shape)));
    x.apply_op1(Node { result, start, end })
}

struct Node {
    /// Until the graph has it.
    result: Mutex<Option<(Vec<f32>, Shape)>>,
    start: Option<Activation>,
    end: Activation,
}

impl CustomOp1 for Node {
    fn name(&self) -> &'static str {
        "tape"
    }

    fn cpu_fwd(&self, _x: &CpuStorage, _layout: &Layout) -> Result<(CpuStorage, Shape)> {
        match self.result.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some((numbers, shape)) => Ok((CpuStorage::F32(numbers), shape)),
            None => bail!("a node's result is given away once"),
        }
    }

    fn bwd(&self, x: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let dy = read(dy, |dy| Ok(dy.to_vec()))?;
        let mut gradients = self.end.clone().backward(dy, None)?;
        let Some(start) = &self.start else {
            return Ok(None);
        };
        Tensor::from_vec(gradients.of(start)?, x.shape(), x.device()).map(Some)
    }
}

impl Operand for Tensor {
    fn dims(&self) -> &[usize] {
        Tensor::dims(self)
    }

    fn is_recorded(&self) -> bool {
        self.track_op()
    }

    fn applied(self, op: impl TensorOp, keeps_input: bool) -> Result<Tensor> {
        node(&self, |x| x.clone().applied(op, keeps_input))
    }
}
