//! What a rank can say of its part: bytes that it holds, phases of stage 3, what a step has
//! communicated.

use super::{Stage, Unit, Zero};
use crate::comm::Comm;
use std::time::Instant;

impl Zero {
    /// Bytes that this rank holds now.
    pub fn memory(&self) -> MemoryUsage {
        self.engine.memory()
    }

    /// Elements that the last step communicated, over all ranks. Padding does not count.
    pub fn volumes(&self) -> Volumes {
        let [all, experts] = [false, true].map(|expert| self.engine.volumes(expert));
        Volumes {
            gathered: all[0] + experts[0],
            reduced: all[1] + experts[1],
            gathered_bytes: self.config.precision.bytes(),
            reduced_bytes: self.config.reduce.bytes(),
        }
    }

    /// Bytes that each rank sends in a step like the last one, by the formula. In a gather, each of
    /// n ranks sends (n-1)/n of the elements, and the same in a reduction. Stage 0 does both with
    /// gradients. The other stages also compute a norm. Experts have n of their own. Under HSDP n
    /// is one group's ranks, and what they send other groups comes on top.
    pub fn bytes_a_step(&self) -> f64 {
        let bytes = |expert| {
            let ranks = self.replicas.of(expert).size() as f64;
            let share = (ranks - 1.0) / ranks;
            let [gathered, reduced] = self.engine.volumes(expert);
            let gathered = gathered * self.config.precision.bytes();
            let reduced = reduced * self.config.reduce.bytes();
            match self.config.stage {
                Stage::Ddp => 2.0 * share * reduced as f64,
                _ => share * (gathered + reduced) as f64,
            }
        };
        bytes(false) + bytes(true) + self.norm_bytes() as f64 + self.bytes_between()
    }

    /// Bytes that each rank sends other groups in a step, by the formula: an all-reduce of its
    /// shard of the gradients, once. With r groups that is 2(r-1)/r of the shard.
    pub fn bytes_between(&self) -> f64 {
        let groups = self.replicas.between().map_or(1, Comm::size) as f64;
        let shard = self.params.numel() as f64 / self.replicas.once().size() as f64;
        2.0 * (groups - 1.0) / groups * shard * self.config.reduce.bytes() as f64
    }

    /// Bytes that rank 0 sends for one global norm: 4 in an all-reduce of one f32, which a
    /// different rank reduces, and 16 in an all-reduce of two f64, of which rank 0 reduces one.
    pub fn norm_bytes(&self) -> usize {
        let sharded = self.config.stage > Stage::Ddp || self.replicas.experts().is_some();
        if self.replicas.once().size() > 1 && sharded {
            20
        } else {
            0
        }
    }

    /// The events since the previous call. Only stage 3 has events.
    pub fn events(&mut self) -> Vec<Event> {
        self.engine.events()
    }

    /// Elements of each bucket of gradients, in the order in which a backward pass completes them.
    /// Stage 3 has units in their place.
    pub fn buckets(&self) -> Vec<usize> {
        self.engine.buckets()
    }

    /// The units, by number. Only stage 3 has units.
    pub fn units(&self) -> &[Unit] {
        self.engine.units()
    }
}

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
