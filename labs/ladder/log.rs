//! What a rank has done, noted while it computes and sends.

use crate::clock::Event;
use crate::held::Held;

/// What a rank has done.
pub(crate) struct Log {
    pub events: Vec<Event>,
    pub held: Held,
    /// The mean loss of each step and part that this rank has computed.
    pub losses: Vec<(usize, usize, f64)>,
    /// The layers that ran backward, each with the gradients of its parameters.
    pub gradients: Vec<(usize, Vec<f32>)>,
    pub updates: Vec<Update>,
    pub calls: usize,
}

/// What the optimizer got for some parameters.
#[derive(Clone, Debug)]
pub struct Update {
    /// Before the step.
    pub weights: Vec<f32>,
    pub gradients: Vec<f32>,
}

impl Log {
    pub fn new() -> Log {
        Log {
            events: Vec::new(),
            held: Held::new(),
            losses: Vec::new(),
            gradients: Vec::new(),
            updates: Vec::new(),
            calls: 0,
        }
    }

    /// Notes something. What is noted is not the program's own memory.
    pub fn note(&mut self, something: impl FnOnce(&mut Log)) {
        let left_at = self.held.leave();
        something(self);
        self.held.back(left_at);
    }

    pub fn tell(&mut self, event: Event) {
        self.note(|log| log.events.push(event));
    }
}
