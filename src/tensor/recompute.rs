//! Activations that are computed twice, because that costs less than keeping them (Chen et al.,
//! arXiv 1604.06174).

use super::tape::{Activation, Deferred, Floats, Operation, Tape};
use candle_core::{Result, Shape};
use std::sync::Arc;

/// Applies `layers` to `x`, and keeps nothing but `x` for the backward pass. The backward pass
/// first runs `layers` again, on a tape of their own. So `layers` must compute the same bits each
/// time.
///
/// # Errors
/// If `layers` fails.
pub fn recompute(
    x: &Activation,
    layers: impl Fn(&Activation) -> Result<Activation> + Send + Sync + 'static,
) -> Result<Activation> {
    let y = layers(&x.detached())?;
    if !x.is_recorded() {
        return Ok(y);
    }
    let shape = y.shape().clone();
    Tape::note(&[x], (y.into_numbers(), shape), |_| {
        Arc::new(Recompute { x: x.numbers.clone(), shape: x.shape().clone(), layers })
    })
}

struct Recompute<F> {
    x: Floats,
    shape: Shape,
    layers: F,
}

impl<F: Fn(&Activation) -> Result<Activation> + Send + Sync> Operation for Recompute<F> {
    fn input_gradients(
        &self,
        dy: &Floats,
        later: &mut Option<&mut Deferred>,
    ) -> Result<Vec<Floats>> {
        let x = Activation::sharing(self.x.clone(), self.shape.clone()).started(&Tape::default())?;
        let y = (self.layers)(&x)?;
        let mut gradients = y.backward_from(dy.clone(), later.as_deref_mut())?;
        Ok(vec![Arc::new(gradients.of(&x)?)])
    }
}
