//! lab06-order · One rank's order, over a slow link

use shardlab::parallel::pipeline::Op;

/// The times of a forward pass, a backward pass and a message: milliseconds.
pub const FORWARD: usize = 2;
pub const BACKWARD: usize = 4;
pub const MESSAGE: usize = 3;

/// The passes of `rank` in one step, in order.
pub fn order(rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    // Each rank behind this one delays a gradient by two passes and two messages. Meanwhile the rank needs work: a forward and
    // a backward pass for each micro-batch that is on its way.
    let away = (ranks - 1 - rank) * (FORWARD + BACKWARD + 2 * MESSAGE);
    let warm_up = away.div_ceil(FORWARD + BACKWARD).min(micro_batches);
    let mut order: Vec<Op> = (0..warm_up).map(|micro| Op::forward(0, micro)).collect();
    for back in 0..micro_batches {
        let next = warm_up + back;
        if next < micro_batches {
            order.push(Op::forward(0, next));
        }
        order.push(Op::backward(0, back));
    }
    order
}
