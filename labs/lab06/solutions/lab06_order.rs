//! lab06-order · The order of one rank

use shardlab::parallel::pipeline::Op;

/// The passes of `rank` in one step, in the order of 1F1B. A backward pass takes about twice as long as a forward pass.
pub fn order(rank: usize, ranks: usize, micro_batches: usize) -> Vec<Op> {
    // Until micro-batch 0 comes back, all ranks behind need a micro-batch each to work on.
    let warm_up = (ranks - 1 - rank).min(micro_batches);
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
