//! What a rank can say of its part: bytes that it holds, phases of stage 3, what a step has
//! communicated.

use std::time::Instant;

/// Bytes that a rank holds: the sizes of its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    pub parameters: usize,
    pub gradients: usize,
    /// Moments, and the f32 master copy of parameters that are stored in bf16.
    pub optimizer: usize,
    /// Bytes of parameters and optimizer state that are offloaded, to the host's memory or to
    /// files.
    pub parameters_offloaded: usize,
    pub optimizer_offloaded: usize,
    /// Temporary buffers now: gathered units, gradients in flight.
    pub buffers: usize,
    /// The peak of a step's temporary buffers.
    pub peak_buffers: usize,
}

impl MemoryUsage {
    pub fn total(&self) -> usize {
        self.parameters + self.gradients + self.optimizer + self.buffers
    }
}

/// A phase of a unit of stage 3.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub unit: usize,
    pub kind: EventKind,
    pub start: Instant,
    pub end: Instant,
}

/// The kinds of a unit's phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The unit's parameters are in flight.
    Gather,
    /// This rank can only wait for the unit's parameters.
    Wait,
    /// The unit's parameters are whole on this rank, for the forward pass.
    Forward,
    /// The unit's parameters are whole on this rank, for the backward pass.
    Backward,
    /// The unit's gradients are in flight.
    ReduceScatter,
    /// The optimizer updates the shards of all units.
    Step,
}

/// Elements that a step communicates, over all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Volumes {
    /// Elements of whole parameters that ranks gathered.
    pub gathered: usize,
    /// Elements of whole gradients that ranks reduced.
    pub reduced: usize,
    /// Bytes of a parameter, and of a gradient.
    pub gathered_bytes: usize,
    pub reduced_bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peak belongs to another moment, and what is offloaded to another memory.
    #[test]
    fn memory_adds_up_without_what_is_elsewhere() {
        let memory = MemoryUsage {
            parameters: 1,
            gradients: 10,
            optimizer: 100,
            parameters_offloaded: 5,
            optimizer_offloaded: 5,
            buffers: 1000,
            peak_buffers: 5,
        };
        assert_eq!(memory.total(), 1111);
    }
}
