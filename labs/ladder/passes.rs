//! What a rank has computed, pass by pass, and what it held then.

use crate::clock::{Doing, Event};
use crate::run::Trained;
use shardlab::comm::CallKind;
use std::collections::HashMap;

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
        Event::Compute { doing, layer, flops, held } => Some(Pass { doing, layer, flops, held }),
        _ => None,
    };
    trained.events.iter().filter_map(pass).collect()
}

/// The most parts that a rank has in flight at a time: those that ran forward through its first
/// layer, and not backward yet.
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
            Doing::Update => {}
        }
        most = most.max(flying);
    }
    most
}

/// Bytes of whole gradients that a rank has computed, and not yet handed on, in order of its
/// passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Those whose reduce-scatter or all-reduce has not begun.
    pub waiting: usize,
    /// Those whose reduce-scatter or all-reduce the rank has not waited for. It holds them until
    /// then.
    pub held: usize,
}

/// For each backward pass, the whole gradients of passes before it. The last entry is for the end
/// of the run.
pub fn whole_gradients(trained: &Trained) -> Vec<Whole> {
    let mut now = Whole::default();
    let mut all = Vec::new();
    let mut calls = HashMap::new();
    let mut gradients = trained.gradients.iter();
    for event in &trained.events {
        match event {
            Event::Compute { doing: Doing::Backward, .. } => {
                all.push(now);
                let gradient = gradients.next().map(|(_, gradient)| size_of_val(&gradient[..]));
                now.waiting += gradient.unwrap_or_default();
                now.held += gradient.unwrap_or_default();
            }
            Event::Start {
                number,
                kind: CallKind::ReduceScatter | CallKind::AllReduce,
                bytes,
                ..
            } => {
                now.waiting = now.waiting.saturating_sub(*bytes);
                calls.insert(*number, *bytes);
            }
            Event::Wait { number } => {
                let bytes = calls.remove(number).unwrap_or_default();
                now.held = now.held.saturating_sub(bytes);
            }
            _ => {}
        }
    }
    all.push(now);
    all
}
