//! A rank's computing time, by operation.
//!
//! Every operation of the graph is timed, always: two looks at the clock cost some 50 ns, an operation of a small model a
//! hundred microseconds. Each thread has its own times, because each rank is a thread.

use std::cell::RefCell;
use std::time::Instant;

/// The time of one kind of operation on this thread, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpTime {
    pub name: &'static str,
    pub forward: f64,
    pub backward: f64,
    /// Matrix products, a part of the two passes.
    pub forward_matmul: f64,
    pub backward_matmul: f64,
}

#[derive(Default)]
struct Times {
    ops: Vec<OpTime>,
    current: Current,
}

/// The operation that runs now, in seconds since it began.
#[derive(Default)]
struct Current {
    matmul: f64,
    /// Time inside the operation that is not its own: communication, or a different operation.
    elsewhere: f64,
}

thread_local! {
    static TIMES: RefCell<Times> = RefCell::default();
}

/// The times since the last call of this function, by operation, in the order in which they first ran.
pub fn take() -> Vec<OpTime> {
    TIMES.with_borrow_mut(|times| std::mem::take(&mut times.ops))
}

pub(super) fn forward<R>(name: &'static str, run: impl FnOnce() -> R) -> R {
    timed(run, |times, seconds, matmul| {
        let op = op(times, name);
        op.forward += seconds;
        op.forward_matmul += matmul;
    })
}

pub(super) fn backward<R>(name: &'static str, run: impl FnOnce() -> R) -> R {
    timed(run, |times, seconds, matmul| {
        let op = op(times, name);
        op.backward += seconds;
        op.backward_matmul += matmul;
    })
}

/// Times a matrix product, which counts as a part of the operation around it.
pub(super) fn matmul<R>(run: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = run();
    TIMES.with_borrow_mut(|times| times.current.matmul += start.elapsed().as_secs_f64());
    result
}

/// Runs something inside an operation that must not count as its time: communication of a finished gradient.
pub(super) fn elsewhere<R>(run: impl FnOnce() -> R) -> R {
    timed(run, |_, _, _| ())
}

/// Times `run`, which is no part of the operation around it. `note` gets its seconds, and those of its matrix products.
fn timed<R>(run: impl FnOnce() -> R, note: impl FnOnce(&mut Times, f64, f64)) -> R {
    let around = TIMES.with_borrow_mut(|times| std::mem::take(&mut times.current));
    let start = Instant::now();
    let result = run();
    TIMES.with_borrow_mut(|times| {
        let seconds = start.elapsed().as_secs_f64();
        let Current { matmul, elsewhere } = std::mem::take(&mut times.current);
        note(times, seconds - elsewhere, matmul);
        times.current = Current { elsewhere: around.elsewhere + seconds, ..around };
    });
    result
}

fn op<'a>(times: &'a mut Times, name: &'static str) -> &'a mut OpTime {
    let place = times.ops.iter().position(|op| op.name == name).unwrap_or_else(|| {
        let new = OpTime { name, forward: 0.0, backward: 0.0, forward_matmul: 0.0, backward_matmul: 0.0 };
        times.ops.push(new);
        times.ops.len() - 1
    });
    &mut times.ops[place]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// An operation that runs another one, as a layer does that computes its forward pass again in the backward pass.
    #[test]
    fn an_operation_inside_an_operation_has_its_own_time() {
        let product = |millis| matmul(|| std::thread::sleep(Duration::from_millis(millis)));
        take();
        let start = Instant::now();
        backward("outer", || {
            product(20);
            forward("inner", || product(5));
            elsewhere(|| product(5));
        });
        let whole = start.elapsed().as_secs_f64();
        let [inner, outer] = take()[..] else { panic!("two operations ran") };
        assert_eq!((inner.name, outer.name), ("inner", "outer"));
        assert!(inner.forward_matmul >= 0.005 && inner.forward >= inner.forward_matmul);
        assert!(outer.backward_matmul >= 0.02 && outer.backward >= outer.backward_matmul);
        assert!(inner.forward + outer.backward + 0.005 <= whole);
    }
}
