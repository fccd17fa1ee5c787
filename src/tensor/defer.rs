//! A backward pass that defers the weights' gradients.
//!
//! A layer's backward pass has two halves. The previous layer, perhaps on the previous stage of a
//! pipeline, waits for the gradient of the input. Only the optimizer waits for the gradients of the
//! weights. A stage can compute them when it would otherwise be idle (zero-bubble schedules: Qi et
//! al., arXiv 2401.10241). The price is memory: the inputs and the gradients of the results stay in
//! memory until then.

use candle_core::Result;
use std::cell::RefCell;

type Half = Box<dyn FnOnce() -> Result<()>>;

thread_local! {
    /// The halves that this thread has deferred; None outside of [`defer`]. Each rank is a thread.
    static LATER: RefCell<Option<Vec<Half>>> = const { RefCell::new(None) };
}

/// Runs `pass` without the gradients of weights. Returns its result, and the gradients' computation
/// for later.
pub fn defer<R>(pass: impl FnOnce() -> R) -> (R, Deferred) {
    // Restored even if the pass panics, because the thread may survive the panic.
    struct Before(Option<Vec<Half>>);
    impl Drop for Before {
        fn drop(&mut self) {
            LATER.replace(self.0.take());
        }
    }
    let before = Before(LATER.replace(Some(Vec::new())));
    let result = pass();
    let halves = LATER.take().unwrap_or_default();
    drop(before);
    (result, Deferred { halves })
}

/// The weights' half of a backward pass. Dropping it loses these gradients.
#[must_use = "the weights have no gradients until `run` is called"]
pub struct Deferred {
    halves: Vec<Half>,
}

impl Deferred {
    /// Computes the gradients, in the order of the pass. The sums are bitwise the same as without
    /// deferral.
    ///
    /// # Errors
    /// If an operation cannot add its gradient, or a hook fails: a rank has ended with which it
    /// communicates.
    pub fn run(self) -> Result<()> {
        self.halves.into_iter().try_for_each(|half| half())
    }
}

/// Runs `half` now, or defers it inside [`defer`].
pub(super) fn now_or_later(half: impl FnOnce() -> Result<()> + 'static) -> Result<()> {
    if LATER.with_borrow(Option::is_none) {
        return half();
    }
    LATER.with_borrow_mut(|later| later.get_or_insert_default().push(Box::new(half)));
    Ok(())
}
