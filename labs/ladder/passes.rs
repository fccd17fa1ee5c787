//! What a rank has computed, pass by pass, and what it held then.

use crate::clock::{Doing, Event};
use crate::run::Trained;

/// A pass of a layer, or an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    pub doing: Doing,
    pub layer: usize,
    /// Operations.
    pub flops: usize,
    /// Bytes that the rank held when it was over.
    pub held: u64,
}

/// All passes and updates of a rank, in order.
pub fn passes(trained: &Trained) -> Vec<Pass> {
    let pass = |event: &Event| match *event {
        Event::Compute {
            doing,
            layer,
            flops,
            held,
        } => Some(Pass {
            doing,
            layer,
            flops,
            held,
        }),
        _ => None,
    };
    trained.events.iter().filter_map(pass).collect()
}

/// The most parts that a rank has in flight at a time: those that ran forward through its first layer, and not backward yet.
pub fn most_in_flight(trained: &Trained) -> usize {
    let passes = passes(trained);
    let first = passes
        .iter()
        .filter(|pass| pass.doing != Doing::Update)
        .map(|pass| pass.layer)
        .min();
    let mut flying: usize = 0;
    let mut most = 0;
    for pass in passes.iter().filter(|pass| Some(pass.layer) == first) {
        match pass.doing {
            Doing::Forward => flying += 1,
            Doing::Backward => flying = flying.saturating_sub(1),
            Doing::Update | Doing::Waits => {}
        }
        most = most.max(flying);
    }
    most
}
