//! lab06-order · One rank's order, over a slow link

use shardlab::parallel::pipeline::Op;

/// The times of a forward pass, a backward pass and a message, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub forward: usize,
    pub backward: usize,
    pub message: usize,
}

/// The passes of `rank` in one step, in order.
pub fn order(rank: usize, ranks: usize, micro_batches: usize, times: Times) -> Vec<Op> {
    // Each later rank delays a gradient by two passes and two messages. Meanwhile the rank needs
    // work: a forward and a backward pass for each micro-batch that is on its way.
    let pair = times.forward + times.backward;
    let away = (ranks - 1 - rank) * (pair + 2 * times.message);
    let warm_up = away.div_ceil(pair).min(micro_batches);
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
