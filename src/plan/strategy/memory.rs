//! All bytes that a rank holds.

use super::Job;
use super::degrees::{Offload, Recompute, Strategy};
use super::kept::Kept;
use super::model::Family;
use crate::plan::zero_memory;

/// The bytes of a rank, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Load {
    pub weights: f64,
    pub gradients: f64,
    pub optimizer: f64,
    /// Kept by the forward passes in flight.
    pub activations: f64,
    /// The result of a pipeline's pass that waits to be sent: this library copies it out of the graph.
    pub messages: f64,
    /// Gathered layers, and the layer that is being recomputed.
    pub working: f64,
    /// In the host's memory.
    pub host: f64,
}

impl Load {
    /// Bytes on the device.
    pub fn total(&self) -> f64 {
        self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.messages
            + self.working
    }
}

impl Strategy {
    /// Micro-batches whose activations a stage keeps at most, in units of all its layers. With 1F1B they are p - stage. With
    /// interleaved chunks they are p (1 + (p-1)/(pv)) on the first stage (Korthikanti et al., section 4.2.3). If there are fewer
    /// micro-batches, all are in flight.
    pub fn in_flight(&self, stage: usize, micro_batches: usize) -> f64 {
        let p = self.pipeline;
        let v = self.chunks;
        let m = micro_batches;
        if v == 1 {
            return m.min(p - stage) as f64;
        }
        // The forward passes of chunks before the first backward pass, and the one that comes with it.
        let ahead = 2 * (p - stage - 1) + (v - 1) * p + 1;
        ahead.min(m * v) as f64 / v as f64
    }
}

impl Job {
    /// The most that any rank holds: of the first stage, which has most micro-batches in flight, and the last, which has the
    /// logits.
    pub fn load(&self, strategy: &Strategy) -> Load {
        let last = strategy.pipeline - 1;
        let first = self.load_of(strategy, 0);
        let last = self.load_of(strategy, last);
        if last.total() > first.total() {
            last
        } else {
            first
        }
    }

    /// The bytes of a rank of a pipeline stage.
    pub fn load_of(&self, strategy: &Strategy, stage: usize) -> Load {
        let model = &self.model;
        let s = strategy;
        let first = stage == 0;
        let last = stage + 1 == s.pipeline;
        let layers = s.layers(model.layers);
        let held = model.on_a_rank(layers, s.tensor, first, last);
        let [weights, gradients, optimizer] =
            zero_memory(s.zero, held as u64, s.data as u64, self.bytes).map(|n| n as f64);

        let tokens = (s.micro_batch * model.length) as f64;
        let h = model.width as f64;
        let element = self.element();
        let kept = Kept::of(model, element, self.flash);
        let layer = kept.on_a_rank(s) * tokens * h;
        let flying = s.in_flight(stage, s.micro_batches(self.batch));
        // Before the first layer: a mask of the embedding's dropout. Here also the embedding or the message from the stage before,
        // if the first layer does not keep it to be recomputed, and each chunk's result, except for the last, which is the head's.
        let ends = match model.family {
            Family::Gpt if first => 1.0,
            Family::Here { .. } => {
                let input = usize::from(s.recompute != Recompute::Full);
                element * (input + s.chunks - usize::from(last)) as f64
            }
            _ => 0.0,
        };
        let ends = ends * flying * tokens * h / s.stream();
        let messages = match model.family {
            Family::Here { .. } if !last => element * tokens * h / s.stream(),
            _ => 0.0,
        };
        // After the last one: its norm, the head's input, and logits in f32.
        let logits = 4.0 * tokens * model.vocabulary as f64 / s.tensor as f64;
        let head = if last {
            logits + 2.0 * tokens * h * element / s.stream()
        } else {
            0.0
        };
        let activations = flying * layers as f64 * layer + ends + head;

        // A layer that is recomputed has all that its forward pass writes.
        let recomputed = match s.recompute {
            Recompute::None => 0.0,
            Recompute::Selective => kept.scores / s.tensor as f64 * tokens * h,
            Recompute::Full => kept.written(s) * tokens * h,
        };
        // ZeRO-3 gathers the next layer while it uses one, and reduces a layer's gradients; offloaded parameters pass through the
        // same buffers. Tiles divide them.
        let gathers = s.zero == 3 && (s.data > 1 || s.offload == Offload::Parameters);
        let each = 2.0 * self.bytes.parameter as f64 + self.bytes.parameter as f64;
        let gathered = if gathers {
            each * model.largest_layer() / (s.tensor * s.tiles) as f64
        } else {
            0.0
        };
        let working = recomputed + gathered;

        let keeps = |bytes: f64, until: Offload| if s.offload < until { bytes } else { 0.0 };
        let state = weights + gradients + optimizer;
        let [weights, gradients] =
            [weights, gradients].map(|bytes| keeps(bytes, Offload::Parameters));
        let optimizer = keeps(optimizer, Offload::Optimizer);
        let host = state - weights - gradients - optimizer;
        Load {
            weights,
            gradients,
            optimizer,
            activations,
            messages,
            working,
            host,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cluster, Device, Model};
    use super::*;
    use crate::plan::BytesEach;

    fn job(model: Model, devices: usize) -> Job {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        Job {
            flash: false,
            ..Job::new(model, cluster, devices)
        }
    }

    /// ZeRO's figure 1: 7.5 billion parameters on 64 ranks, 16 bytes each.
    #[test]
    fn weights_gradients_and_optimizer_are_zeros_table() {
        // A model with 7.5 billion parameters, near enough: the share of each stage is what counts.
        let model = Model::gpt(36, 4096, 32, 51_200, 2048);
        let job = Job {
            bytes: BytesEach::MIXED,
            ..job(model, 64)
        };
        let held = |zero| {
            let load = job.load(&Strategy {
                data: 64,
                zero,
                ..Strategy::SINGLE
            });
            (load.weights + load.gradients + load.optimizer) / model.parameters() * 7.5
        };
        for (stage, gigabytes) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            assert!(
                (held(stage) - gigabytes).abs() < 0.05,
                "stage {stage}: {}",
                held(stage)
            );
        }
    }

    /// The factor of the paper.
    #[test]
    fn the_first_stage_has_all_layers_in_flight() {
        let of = |pipeline, chunks| {
            Strategy {
                pipeline,
                chunks,
                ..Strategy::SINGLE
            }
            .in_flight(0, 64)
        };
        assert_eq!([of(4, 1), of(1, 1), of(4, 2)], [4.0, 1.0, 5.5]);
        assert!((of(35, 3) - 35.0 * (1.0 + 34.0 / 105.0)).abs() < 1e-12);
        assert_eq!(
            Strategy {
                pipeline: 8,
                ..Strategy::SINGLE
            }
            .in_flight(0, 3),
            3.0
        );
        assert_eq!(
            Strategy {
                pipeline: 8,
                ..Strategy::SINGLE
            }
            .in_flight(7, 64),
            1.0
        );
    }

    #[test]
    fn offloading_moves_bytes_to_the_host_and_tiles_shrink_gathered_layers() {
        let job = job(Model::gpt(48, 6144, 64, 51_200, 2048), 1);
        let on = |offload, zero, tiles| {
            job.load(&Strategy {
                offload,
                zero,
                tiles,
                ..Strategy::SINGLE
            })
        };
        let none = on(Offload::None, 0, 1);
        let optimizer = on(Offload::Optimizer, 0, 1);
        let all = on(Offload::Parameters, 3, 1);
        assert_eq!((optimizer.optimizer, optimizer.host), (0.0, none.optimizer));
        let state = none.weights + none.gradients + none.optimizer;
        assert_eq!((all.weights, all.gradients, all.host), (0.0, 0.0, state));
        let tiled = on(Offload::Parameters, 3, 4);
        assert_eq!(tiled.working, all.working / 4.0);
    }
}
