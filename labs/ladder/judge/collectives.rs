//! What a program sends, and what it computes meanwhile.

use crate::Trained;
use crate::clock::{Doing, Event};
use shardlab::comm::CallKind;

/// A collective of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    pub kind: CallKind,
    /// Of the whole vector.
    pub bytes: usize,
    /// Passes and updates that the rank computes before it waits for the result.
    pub beside: usize,
    /// Backward passes that still follow in the same step.
    pub behind: usize,
}

/// Whether a rank first waits, after the passes of its first step, for the collective that it has
/// started last.
pub fn waits_for_the_last_first(trained: &Trained) -> bool {
    let mut started = Vec::new();
    for event in &trained.events {
        match event {
            Event::Start { number, .. } => started.push(*number),
            Event::Wait { number } => return started.len() > 1 && started.last() == Some(number),
            _ => {}
        }
    }
    false
}

/// All collectives of a rank, in order.
pub fn collectives(trained: &Trained) -> Vec<Collective> {
    let events = &trained.events;
    let computes = |event: &&Event| matches!(event, Event::Compute { .. });
    let collective = |(i, event): (usize, &Event)| {
        let Event::Start { number, kind, bytes, .. } = event else {
            return None;
        };
        let later = &events[i..];
        let waits = |event: &Event| matches!(event, Event::Wait { number: n } if n == number);
        let until = later.iter().position(waits).unwrap_or(later.len());
        let passes = later.iter().filter_map(|event| match event {
            Event::Compute { doing, .. } => Some(*doing),
            _ => None,
        });
        let in_step = passes.take_while(|doing| *doing != Doing::Forward);
        Some(Collective {
            kind: *kind,
            bytes: *bytes,
            beside: later[..until].iter().filter(computes).count(),
            behind: in_step.filter(|doing| *doing == Doing::Backward).count(),
        })
    };
    events.iter().enumerate().filter_map(collective).collect()
}
