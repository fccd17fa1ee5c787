//! A rank's computing time, by operation.
//!
//! Every operation on a tape is always timed. Reading the clock twice costs some 50 ns, while an
//! operation of a small model takes a hundred microseconds. Each rank is a thread, so each thread
//! has its own times.

use crate::allocator;
use std::cell::RefCell;
use std::time::Instant;

/// The time of one kind of operation on this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpTime {
    pub name: &'static str,
    pub forward: PassTime,
    pub backward: PassTime,
}

/// The time of one pass through an operation, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PassTime {
    pub seconds: f64,
    /// The part of `seconds` in matrix products.
    pub matmul: f64,
}

/// Matrix products: what they computed, and what they read and wrote. A product's operands and its
/// result count once each, so `bytes` is the least that memory has to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Products {
    /// A multiplication and an addition are two.
    pub flops: u64,
    pub bytes: u64,
}

impl std::ops::Sub for Products {
    type Output = Products;
    /// The products since an earlier reading.
    fn sub(self, earlier: Products) -> Products {
        Products {
            flops: self.flops - earlier.flops,
            bytes: self.bytes - earlier.bytes,
        }
    }
}

#[derive(Default)]
struct Times {
    ops: Vec<OpTime>,
    current: Current,
    products: Products,
}

/// The operation that runs now, in seconds since it began.
#[derive(Default)]
struct Current {
    matmul: f64,
    /// Time inside the operation that belongs to communication or to a different operation.
    excluded: f64,
}

thread_local! {
    static TIMES: RefCell<Times> = RefCell::default();
}

/// Returns the times since the previous call, by operation, in the order in which the operations
/// first ran.
pub fn take() -> Vec<OpTime> {
    TIMES.with_borrow_mut(|times| std::mem::take(&mut times.ops))
}

/// All matrix products that this thread has computed so far.
pub fn products() -> Products {
    TIMES.with_borrow(|times| times.products)
}

pub(super) fn forward<R>(name: &'static str, run: impl FnOnce() -> R) -> R {
    timed(run, |times, took| times.op(name).forward.add(took))
}

pub(super) fn backward<R>(name: &'static str, run: impl FnOnce() -> R) -> R {
    timed(run, |times, took| times.op(name).backward.add(took))
}

/// Times a matrix product, which counts as a part of the operation around it, and counts `product`.
/// Its copies of factors are nobody's activations.
pub(super) fn matmul<R>(product: Products, run: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = allocator::apart(run);
    TIMES.with_borrow_mut(|times| {
        times.current.matmul += start.elapsed().as_secs_f64();
        times.products.flops += product.flops;
        times.products.bytes += product.bytes;
    });
    result
}

/// Runs work inside an operation that must not count as the operation's time, such as the
/// communication of a gradient.
pub(super) fn excluded<R>(run: impl FnOnce() -> R) -> R {
    timed(run, |_, _| ())
}

/// Times `run`, which does not count as a part of the operation around it, and calls `note` with
/// its time.
fn timed<R>(run: impl FnOnce() -> R, note: impl FnOnce(&mut Times, PassTime)) -> R {
    let around = TIMES.with_borrow_mut(|times| std::mem::take(&mut times.current));
    let start = Instant::now();
    let result = run();
    TIMES.with_borrow_mut(|times| {
        let seconds = start.elapsed().as_secs_f64();
        let Current { matmul, excluded } = std::mem::take(&mut times.current);
        note(times, PassTime { seconds: seconds - excluded, matmul });
        times.current = Current { excluded: around.excluded + seconds, ..around };
    });
    result
}

impl PassTime {
    fn add(&mut self, more: PassTime) {
        self.seconds += more.seconds;
        self.matmul += more.matmul;
    }
}

impl Times {
    fn op(&mut self, name: &'static str) -> &mut OpTime {
        let known = self.ops.iter().position(|op| op.name == name);
        let index = known.unwrap_or_else(|| {
            self.ops.push(OpTime { name, ..OpTime::default() });
            self.ops.len() - 1
        });
        &mut self.ops[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// An operation runs an operation: so does a layer that recomputes its forward pass in the
    /// backward pass.
    #[test]
    fn an_operation_inside_an_operation_has_its_own_time() {
        let product = |millis| {
            matmul(Products::default(), || std::thread::sleep(Duration::from_millis(millis)))
        };
        take();
        let start = Instant::now();
        backward("outer", || {
            product(20);
            forward("inner", || product(5));
            excluded(|| product(5));
        });
        let whole = start.elapsed().as_secs_f64();
        let [inner, outer] = take()[..] else {
            panic!("two operations ran")
        };
        assert_eq!((inner.name, outer.name), ("inner", "outer"));
        assert!(inner.forward.matmul >= 0.005 && inner.forward.seconds >= inner.forward.matmul);
        assert!(outer.backward.matmul >= 0.02 && outer.backward.seconds >= outer.backward.matmul);
        assert!(inner.forward.seconds + outer.backward.seconds + 0.005 <= whole);
    }
}
