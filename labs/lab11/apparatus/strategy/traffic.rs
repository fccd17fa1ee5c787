//! The bytes that a rank sends on each axis, and the time that they take.
//!
//! Sources: Narayanan et al. (arXiv 2104.04473), sections 3 and 4.1, for tensor and pipeline ranks; Rajbhandari et al.
//! (arXiv 1910.02054), section 7, for the data axis.

use super::TrainingJob;
use super::degrees::{Offloaded, Recompute, Strategy};
use serde::{Serialize, Serializer};
use shardlab::mesh::Axis;
use shardlab::plan::zero_volumes;

/// The bytes that one rank sends in a step along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AxisTraffic {
    #[serde(serialize_with = "name")]
    pub axis: Axis,
    pub bytes: f64,
    /// Seconds, if nothing hides them.
    pub seconds: f64,
    /// Whether the axis leaves its node.
    pub between_nodes: bool,
}

fn name<S: Serializer>(axis: &Axis, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(axis.name())
}

/// Seconds of the data axis: of one reduction of all gradients, and of one gather of all parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DataSeconds {
    pub reduce: f64,
    pub gather: f64,
}

impl TrainingJob {
    /// Bytes of a micro-batch's residual stream.
    fn stream_bytes(&self, strategy: &Strategy) -> f64 {
        (strategy.micro_batch * self.model.block * self.model.embd) as f64 * self.element()
    }

    /// All-reduces at the ends of the model: of the divided token table's rows, and of the head's gradient.
    pub(super) fn ends(strategy: &Strategy) -> f64 {
        if strategy.pipeline == 1 { 2.0 } else { 1.0 }
    }

    /// Seconds of one all-reduce of a micro-batch's residual stream among tensor ranks. With sequence parallelism it is a
    /// reduce-scatter and an all-gather, with the same bytes, as in this library and in PyTorch. Megatron-LM gathers a layer's
    /// inputs once more in the backward pass, which is not counted here.
    pub(super) fn tensor_seconds(&self, strategy: &Strategy) -> f64 {
        let group = self.cluster.network.group(strategy.tensor, 1);
        self.cluster
            .network
            .all_reduces(group, self.stream_bytes(strategy), 1.0)
    }

    /// Seconds of one message between stages. Each tensor rank sends its part. The receivers gather the whole, unless sequence
    /// parallelism wants parts anyway.
    pub(super) fn message_seconds(&self, strategy: &Strategy) -> f64 {
        if strategy.pipeline == 1 {
            return 0.0;
        }
        let bytes = self.stream_bytes(strategy);
        let sends = self.cluster.network.sends(
            bytes / strategy.tensor as f64,
            strategy.tensor * strategy.data,
            strategy.devices(),
        );
        let gathers = if strategy.sequence {
            0.0
        } else {
            self.cluster
                .network
                .gathers(self.cluster.network.group(strategy.tensor, 1), bytes, 1.0)
        };
        sends + gathers
    }

    /// Parameters on a rank of a stage. The first stage has most. Its token table is padded, so that tensor ranks divide it.
    pub(super) fn held(&self, strategy: &Strategy, stage: usize) -> f64 {
        let layers = strategy.layers(self.model.layers);
        let ends = [stage == 0, stage + 1 == strategy.pipeline];
        let rows = self.model.vocabulary.next_multiple_of(strategy.tensor);
        self.model
            .parameters_on_a_rank(layers, ends, strategy.tensor, rows)
    }

    /// Seconds of the data axis, a call for each layer. Without ZeRO the second half gathers gradients instead of parameters.
    pub(super) fn data_seconds(&self, strategy: &Strategy) -> DataSeconds {
        let held = self.held(strategy, 0);
        let layers = strategy.layers(self.model.layers) as f64;
        let group = self.cluster.network.group(strategy.data, strategy.tensor);
        let [gradients, parameters] =
            [self.bytes.gradient, self.bytes.parameter].map(|each| each as f64 * held);
        let gathered = if strategy.zero == 0 {
            gradients
        } else {
            parameters
        };
        // Offloaded parameters come from the host first, and gradients go there: of each rank, its own part.
        let host = |bytes: f64| match strategy.offload {
            Offloaded::Parameters => bytes / strategy.data as f64 / self.cluster.device.host_link,
            _ => 0.0,
        };
        DataSeconds {
            reduce: self.cluster.network.gathers(group, gradients, layers) + host(gradients),
            gather: self.cluster.network.gathers(group, gathered, layers) + host(parameters),
        }
    }

    /// The bytes that a rank sends in a step, axis by axis.
    pub fn traffic(&self, strategy: &Strategy) -> [AxisTraffic; 3] {
        let s = strategy;
        let m = s.micro_batches(self.batch) as f64;
        let layers = s.layers(self.model.layers) as f64;
        let stream = self.stream_bytes(s);
        let share = |n: usize| (n - 1) as f64 / n as f64;
        let node = self.cluster.network.ranks_per_node;

        // Two all-reduces of a layer's forward pass, two of its backward pass, and two more if the layer is computed again. One
        // more at each end of the model.
        let calls = m
            * (layers
                * if s.recompute == Recompute::Full {
                    6.0
                } else {
                    4.0
                }
                + TrainingJob::ends(s));
        let tensor = AxisTraffic {
            axis: Axis::Tensor,
            bytes: calls * 2.0 * share(s.tensor) * stream,
            seconds: calls * self.tensor_seconds(s),
            between_nodes: s.tensor > node,
        };
        // Activations of each chunk forward, and their gradients backward.
        let messages = if s.pipeline == 1 {
            0.0
        } else {
            2.0 * m * s.chunks as f64
        };
        let pipeline = AxisTraffic {
            axis: Axis::Pipeline,
            bytes: messages * stream / s.tensor as f64,
            seconds: messages * self.message_seconds(s),
            between_nodes: s.pipeline > 1 && s.devices() > node,
        };
        let (reduced, gathered) = zero_volumes(s.zero, m as u64);
        let held = self.held(s, 0);
        let seconds = self.data_seconds(s);
        let gathers = if s.zero == 0 {
            self.bytes.gradient
        } else {
            self.bytes.parameter
        };
        let bytes = (reduced * self.bytes.gradient + gathered * gathers) as f64;
        let data = AxisTraffic {
            axis: Axis::Data,
            bytes: share(s.data) * held * bytes,
            seconds: reduced as f64 * seconds.reduce + gathered as f64 * seconds.gather,
            between_nodes: s.data > 1 && s.data * s.tensor > node,
        };
        [tensor, pipeline, data]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cluster, Device};
    use super::*;
    use shardlab::plan::{BytesEach, ModelShape};

    fn job() -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        let model = ModelShape::gpt2(48, 6144, 64, 51_200, 2048);
        TrainingJob {
            batch: 64,
            bytes: BytesEach::MIXED,
            ..TrainingJob::new(model, cluster, 64)
        }
    }

    /// Narayanan et al., section 3.2: a layer's 8bsh(t-1)/t numbers per micro-batch, and bsh between stages.
    #[test]
    fn tensor_and_pipeline_ranks_send_the_papers_bytes() {
        let job = job();
        let strategy = "tp=8,pp=8,chunks=3".parse().unwrap();
        let [tensor, pipeline, _] = job.traffic(&strategy);
        let numbers = (2048 * 6144) as f64;
        let ends = 64.0 * 2.0 * 7.0 / 8.0 * 2.0 * numbers;
        assert!(
            ((tensor.bytes - ends) / (2.0 * 8.0 * numbers * 7.0 / 8.0 * 6.0 * 64.0) - 1.0).abs()
                < 1e-12
        );
        assert_eq!(pipeline.bytes, 2.0 * numbers / 8.0 * 2.0 * 3.0 * 64.0);
        assert!(!tensor.between_nodes && pipeline.between_nodes);
    }

    /// ZeRO's section 7: 2Ψ for DP, ZeRO-1 and ZeRO-2, and 3Ψ for ZeRO-3.
    #[test]
    fn the_data_axis_sends_two_or_three_times_the_model() {
        let job = job();
        let psi = |zero| {
            let strategy = Strategy {
                data: 64,
                zero,
                ..Strategy::SINGLE
            };
            job.traffic(&strategy)[2].bytes / (2.0 * job.model.parameters() as f64 * 63.0 / 64.0)
        };
        for (zero, expected) in [(0, 2.0), (1, 2.0), (2, 2.0), (3, 3.0)] {
            assert!(
                (psi(zero) - expected).abs() < 1e-9,
                "stage {zero}: {}",
                psi(zero)
            );
        }
    }

    /// Sent bytes are those of lab07's plan, but for what it counts at a model's ends.
    #[test]
    fn zero_traffic_is_lab04s() {
        let job = TrainingJob {
            batch: 8,
            bytes: BytesEach::F32,
            ..job()
        };
        for zero in 0..4 {
            let strategy = Strategy {
                data: 4,
                micro_batch: 1,
                zero,
                ..Strategy::SINGLE
            };
            let says = shardlab::plan::zero_traffic(zero, job.model.parameters(), 4, 4, 2);
            assert!(
                (job.traffic(&strategy)[2].bytes / says - 1.0).abs() < 1e-9,
                "stage {zero}"
            );
        }
    }
}
