//! Operations that follow each other, as one node of candle's graph.
//!
//! For each edge of the graph, candle's backward pass makes a tensor of zeros and adds the gradient
//! to it: two passes over as many numbers as the edge has. It must, since several operations may
//! have read the tensor. Inside a chain only the next operation has, so an operation's gradient
//! goes to the operation before it as it is. A chain may hold chains: where all layers of a model
//! are operations of this folder, the model is one node.
//!
//! A residual sum is a chain's, too. candle would keep both summands, and a sum needs neither.

use super::in_place::{add_to, take};
use candle_core::{CpuStorage, CustomOp1, Error, Layout, Result, Shape, Tensor, TensorId, bail};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

/// Applies `layers` to `x`. If they are operations of this folder, each of which takes the result
/// of the one before it, they become one node of the graph. If anything else happens, the graph is
/// candle's.
///
/// The result is moved into that node: `layers` must not keep it.
///
/// # Errors
/// If `layers` fails.
pub fn chain(x: &Tensor, layers: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (y, links) = linked(x, layers)?;
    if links.is_empty() {
        Ok(y)
    } else {
        joined(x, y, links, false)
    }
}

/// `x + layers(x)`: [`chain`] with the sum in the same node, and in the memory of `layers`' result.
/// No operation needs that result, so none is kept.
///
/// # Errors
/// If `layers` fails, or its result does not have the shape of `x`.
pub fn residual(x: &Tensor, layers: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let (y, links) = linked(x, layers)?;
    if links.is_empty() {
        return x + y;
    }
    add_to(&y, x)?;
    joined(x, y, links, true)
}

/// `layers(x)`, and its operations if they are a chain. Else the list is empty.
fn linked(
    x: &Tensor,
    layers: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<(Tensor, Vec<Link>)> {
    // Restored even if the layers fail.
    struct Before(Option<Chain>);
    impl Drop for Before {
        fn drop(&mut self) {
            OPEN.replace(self.0.take());
        }
    }
    if !x.track_op() {
        return Ok((layers(x)?, Vec::new()));
    }
    let before = Before(OPEN.replace(Some(Chain { end: x.id(), links: Vec::new() })));
    let y = layers(x)?;
    let chain = OPEN.take();
    drop(before);
    Ok(match chain {
        Some(chain) if chain.end == y.id() => (y, chain.links),
        _ => (y, Vec::new()),
    })
}

/// Moves `y` into one node for all of `links`.
fn joined(x: &Tensor, y: Tensor, links: Vec<Link>, residual: bool) -> Result<Tensor> {
    let links: Arc<[Link]> = links.into();
    let result = Mutex::new(Some((take(&y)?, y.shape().clone())));
    let y = x.apply_op1(Joined { links: links.clone(), residual, result })?;
    link(x, &y, Joined { links, residual, result: Mutex::default() });
    Ok(y)
}

thread_local! {
    /// The chain that this thread's operations extend; None outside of [`chain`].
    static OPEN: RefCell<Option<Chain>> = const { RefCell::new(None) };
}

struct Chain {
    /// The last operation's result. Whatever takes another tensor is no link.
    end: TensorId,
    links: Vec<Link>,
}

struct Link {
    op: Arc<dyn CustomOp1 + Send + Sync>,
    /// The operation's input, without the graph below it.
    x: Tensor,
}

/// Notes that `op` has made `y` of `x`.
pub(super) fn link(x: &Tensor, y: &Tensor, op: impl CustomOp1 + Send + Sync + 'static) {
    OPEN.with_borrow_mut(|open| {
        if let Some(chain) = open
            && chain.end == x.id()
        {
            chain.links.push(Link { op: Arc::new(op), x: x.detach() });
            chain.end = y.id();
        }
    });
}

struct Joined {
    links: Arc<[Link]>,
    /// Whether the input is added to the last operation's result.
    residual: bool,
    /// The last operation's result, until the graph has it.
    result: Mutex<Option<(CpuStorage, Shape)>>,
}

impl CustomOp1 for Joined {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn cpu_fwd(&self, _x: &CpuStorage, _layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        result.ok_or_else(|| Error::msg("a chain's result is given away once"))
    }

    fn bwd(&self, _x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let mut gradient = dy.clone();
        let mut y = y;
        for Link { op, x } in self.links.iter().rev() {
            match op.bwd(x, y, &gradient)? {
                Some(dx) => gradient = dx,
                None => bail!("{} has no gradient", op.name()),
            }
            y = x;
        }
        if self.residual {
            // An operation's gradient is a tensor of its own, of which nobody else has a part.
            add_to(&gradient, &dy.contiguous()?)?;
        }
        Ok(Some(gradient))
    }
}
