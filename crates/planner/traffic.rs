//! The bytes that a rank sends on each axis, and the time that they take.
//!
//! Sources: Narayanan et al. (arXiv 2104.04473), sections 3 and 4.1, for tensor and pipeline ranks;
//! Rajbhandari et al. (arXiv 1910.02054), section 7, for the data axis.

use super::collective::{self, RankGroup};
use crate::{Degrees, Offloaded, Recompute, Strategy, TrainingJob};
use serde::Serialize;
use shapes::model::Portion;
use shapes::strategy::{Axis, Exchange};
use shapes::{ZeroVolumes, zero_volumes};

/// The bytes that one rank sends in a step along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AxisTraffic {
    /// tensor, context, pipeline or data.
    pub axis: &'static str,
    pub bytes: f64,
    /// Seconds, if nothing hides them.
    pub seconds: f64,
    /// Whether the axis leaves its node.
    pub between_nodes: bool,
}

/// Seconds of the data axis: of one reduction of all gradients and one gather of all parameters in
/// a group that divides them, and of the average between groups that hold the same.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct DataSeconds {
    pub reduce: f64,
    pub gather: f64,
    pub average: f64,
}

/// The part of an array that a rank of `n` sends in a reduce-scatter or an all-gather.
fn share(n: usize) -> f64 {
    (n - 1) as f64 / n as f64
}

impl TrainingJob {
    /// Bytes of a micro-batch's residual stream.
    fn stream_bytes(&self, strategy: &Strategy) -> f64 {
        strategy.tokens(self.model.block) * (self.model.embd as u64 * self.bytes.parameter) as f64
    }

    /// Whether any group of so many neighbours is on more than one node.
    pub fn leaves_node(&self, ranks: usize) -> bool {
        ranks > 1 && collective::leaves_node(&self.cluster.network, self.devices, ranks)
    }

    /// Seconds of a reduce-scatter or an all-gather among `size` ranks, each `stride` ranks from
    /// the next.
    fn gathers(&self, [size, stride]: [usize; 2], bytes: f64, calls: f64) -> f64 {
        let network = &self.cluster.network;
        let group = RankGroup::of(network, self.devices, size, stride);
        let trees = !self.rings && group.per_node == 1;
        collective::gathers(network, group, bytes, calls, trees)
    }

    /// The same of all-reduces.
    fn all_reduces(&self, [size, stride]: [usize; 2], bytes: f64, calls: f64) -> f64 {
        let network = &self.cluster.network;
        let group = RankGroup::of(network, self.devices, size, stride);
        2.0 * collective::gathers(network, group, bytes, calls, !self.rings)
    }

    /// All-reduces at the ends of the model: of the divided token table's rows, and of the head's
    /// gradient.
    pub(super) fn ends(strategy: &Strategy) -> f64 {
        if strategy.pipeline == 1 { 2.0 } else { 1.0 }
    }

    /// Seconds of one all-reduce of a micro-batch's residual stream among tensor ranks. With
    /// sequence parallelism it is a reduce-scatter and an all-gather, with the same bytes.
    pub(super) fn tensor_seconds(&self, strategy: &Strategy) -> f64 {
        let bytes = self.stream_bytes(strategy);
        if strategy.sequence {
            return 2.0 * self.gathers([strategy.tensor, 1], bytes, 1.0);
        }
        self.all_reduces([strategy.tensor, 1], bytes, 1.0)
    }

    /// All-reduces of a layer's forward pass: after attention and after the MLP, or after both
    /// where they work side by side.
    pub(super) fn all_reduces_of_a_layer(&self) -> f64 {
        if self.model.dense().parallel { 1.0 } else { 2.0 }
    }

    /// Whether tensor ranks gather the inputs of matrices once more for the backward pass: two
    /// gathers, the bytes of an all-reduce.
    pub(super) fn gathers_again(&self, strategy: &Strategy) -> bool {
        strategy.sequence && !self.program.keeps_gathered()
    }

    /// All-reduces of a layer that is computed again, as a mean of all layers: two, or the gather
    /// before an MLP that is.
    pub(super) fn recomputed_all_reduces(&self, strategy: &Strategy) -> f64 {
        match strategy.recompute {
            // Up to the last matrix, whose result nothing needs, or with it and its sum.
            Recompute::Mlp if self.program.stops_early() => {
                if strategy.sequence {
                    0.5
                } else {
                    0.0
                }
            }
            Recompute::Mlp => 1.0,
            _ => self.all_reduces_of_a_layer() * strategy.whole_layers(),
        }
    }

    /// Bytes that a context rank sends for one layer of a micro-batch, forward and backward. Sums
    /// of gradients travel in the gradients' type where they add up on the way.
    fn context_bytes(&self, strategy: &Strategy) -> [f64; 2] {
        let s = strategy;
        let t = s.tensor as f64;
        let width = self.model.q_width() as f64 / t;
        let keys = (self.model.kv_heads() * self.model.head()) as f64 / t;
        let tokens = (s.sequences() * self.model.block) as f64;
        let [forward, backward] = s.exchange.sent(s.context, tokens, width, keys);
        let element = self.bytes.parameter as f64;
        let gradients = match s.exchange {
            Exchange::Ulysses => element,
            _ => (element + self.bytes.gradient as f64) / 2.0,
        };
        [forward * element, backward * gradients]
    }

    /// Seconds of the context ranks' messages for one layer, forward and backward, if nothing hides
    /// them.
    pub(super) fn context_seconds(&self, strategy: &Strategy) -> [f64; 2] {
        let s = strategy;
        if s.context == 1 {
            return [0.0; 2];
        }
        let group = [s.context, s.tensor];
        let calls = match s.exchange {
            Exchange::Ulysses => [2.0, 2.0],
            _ => [1.0, 2.0],
        };
        let bytes = self.context_bytes(s);
        [0, 1].map(|i| self.gathers(group, bytes[i] / share(s.context), calls[i]))
    }

    /// The bytes that a context rank sends in a step.
    pub fn context_traffic(&self, strategy: &Strategy) -> AxisTraffic {
        let s = strategy;
        let layers = s.layers(self.model.layers) as f64;
        let times = s.micro_batches_of(self.batch) as f64 * layers;
        // A forward pass that is computed again sends again.
        let forward = 1.0 + s.whole_layers();
        let of = |[first, second]: [f64; 2]| times * (forward * first + second);
        AxisTraffic {
            axis: "context",
            bytes: if s.context > 1 { of(self.context_bytes(s)) } else { 0.0 },
            seconds: of(self.context_seconds(s)),
            between_nodes: s.context > 1 && self.leaves_node(s.context * s.tensor),
        }
    }

    /// Seconds of one message between stages. Each tensor rank sends its part. The receivers gather
    /// the whole, unless sequence parallelism wants parts anyway.
    pub(super) fn message_seconds(&self, strategy: &Strategy) -> f64 {
        if strategy.pipeline == 1 {
            return 0.0;
        }
        let bytes = self.stream_bytes(strategy);
        let sends = collective::sends(
            &self.cluster.network,
            bytes / strategy.tensor as f64,
            strategy.tensor * strategy.gradient_ranks(),
            strategy.ranks(),
        );
        let gathers = if strategy.sequence {
            0.0
        } else {
            self.gathers([strategy.tensor, 1], bytes, 1.0)
        };
        sends + gathers
    }

    /// Parameters on a rank of a stage. Its token table is padded, so that tensor ranks divide it.
    pub(super) fn held(&self, strategy: &Strategy, stage: usize) -> f64 {
        self.model.parameters_on_a_rank(&Portion {
            layers: strategy.layers_of(self.model.layers, stage),
            dense: 0, // the planner's models are dense
            first: stage == 0,
            last: stage + 1 == strategy.pipeline,
            tensor: strategy.tensor,
            rows: self.model.vocabulary.next_multiple_of(strategy.tensor),
        })
    }

    /// Parameters on the rank that holds most.
    pub(super) fn most_held(&self, strategy: &Strategy) -> f64 {
        let held = strategy.heaviest_ranks().map(|stage| self.held(strategy, stage));
        held.fold(0.0, f64::max)
    }

    /// Bytes per parameter that a rank gathers: its weights, or without ZeRO the averaged
    /// gradients.
    fn gathered_bytes(&self, strategy: &Strategy) -> u64 {
        match strategy.zero.number() {
            0 => self.bytes.gradient,
            _ => self.bytes.parameter,
        }
    }

    /// How often a step reduces all gradients and gathers all parameters.
    fn volumes(&self, strategy: &Strategy) -> ZeroVolumes {
        zero_volumes(strategy.zero.number(), strategy.micro_batches_of(self.batch) as u64)
    }

    /// Seconds of the data axis, a call for each layer.
    pub(super) fn data_seconds(&self, strategy: &Strategy) -> DataSeconds {
        let s = strategy;
        let device = &self.cluster.device;
        let held = self.most_held(s);
        let layers = s.layers(self.model.layers) as f64;
        let gradients = self.bytes.gradient as f64 * held;
        let gathered = self.gathered_bytes(s) as f64 * held;
        // Offloaded parameters come from the host first, and gradients go there: of each rank, its
        // own part. From the second micro-batch on the host adds gradients up: it reads both and
        // writes the sum. All of it shares the host's memory.
        let part = |bytes: f64, times: f64| match s.offload {
            Offloaded::Parameters => {
                let own = bytes / s.shard_ranks() as f64;
                (own / device.host_link).max(times * own / device.host_bandwidth)
            }
            _ => 0.0,
        };
        let added = if s.micro_batches_of(self.batch) > 1 { 4.0 } else { 1.0 };
        let group = [s.shard_ranks(), s.tensor];
        let between = [s.replicas, s.tensor * s.shard_ranks()];
        if s.zero.number() == 0 {
            let half = self.all_reduces(group, gradients, layers) / 2.0;
            return DataSeconds { reduce: half, gather: half, average: 0.0 };
        }
        DataSeconds {
            reduce: self.gathers(group, gradients, layers) + part(gradients, added),
            gather: self.gathers(group, gathered, layers) + part(gathered, 1.0),
            average: self.all_reduces(between, gradients / s.shard_ranks() as f64, layers),
        }
    }

    /// The bytes that a rank sends in a step, axis by axis. On the data axis: within a group that
    /// divides the model.
    pub fn traffic(&self, strategy: &Strategy) -> [AxisTraffic; 3] {
        let s = strategy;
        let m = s.micro_batches_of(self.batch) as f64;
        let layers = s.layers(self.model.layers) as f64;
        let stream = self.stream_bytes(s);
        let node = self.cluster.network.ranks_per_node;

        // All-reduces of a layer's forward pass, as many of its backward pass, and those of what is
        // gathered or computed again. One more at each end of the model.
        let pass = self.all_reduces_of_a_layer();
        let again = if self.gathers_again(s) { pass / 2.0 } else { 0.0 };
        let each = 2.0 * pass + again + self.recomputed_all_reduces(s);
        let calls = m * (layers * each + TrainingJob::ends(s));
        let tensor = AxisTraffic {
            axis: Axis::Tensor.name(),
            bytes: calls * 2.0 * share(s.tensor) * stream,
            seconds: calls * self.tensor_seconds(s),
            between_nodes: self.leaves_node(s.tensor),
        };
        // Activations of each chunk forward, and their gradients backward.
        let messages = if s.pipeline == 1 {
            0.0
        } else {
            2.0 * m * s.chunks as f64
        };
        let pipeline = AxisTraffic {
            axis: Axis::Pipeline.name(),
            bytes: messages * stream / s.tensor as f64,
            seconds: messages * self.message_seconds(s),
            between_nodes: s.pipeline > 1 && s.ranks() > node,
        };
        let ZeroVolumes { reduced, gathered } = self.volumes(s);
        let seconds = self.data_seconds(s);
        let bytes = reduced * self.bytes.gradient + gathered * self.gathered_bytes(s);
        let data = AxisTraffic {
            axis: Axis::Data.name(),
            bytes: share(s.shard_ranks()) * self.most_held(s) * bytes as f64,
            seconds: reduced as f64 * seconds.reduce + gathered as f64 * seconds.gather,
            between_nodes: s.shard_ranks() > 1 && self.leaves_node(s.shard_ranks() * s.tensor),
        };
        [tensor, pipeline, data]
    }

    /// The bytes that a rank sends in a step to other groups of data ranks that hold the same:
    /// once, an average of its part of the gradients.
    pub fn replica_traffic(&self, strategy: &Strategy) -> AxisTraffic {
        let s = strategy;
        let part = self.most_held(s) * self.bytes.gradient as f64 / s.shard_ranks() as f64;
        AxisTraffic {
            axis: Axis::Data.name(),
            bytes: 2.0 * share(s.replicas) * part,
            seconds: self.data_seconds(s).average,
            between_nodes: s.replicas > 1
                && s.gradient_ranks() * s.tensor > self.cluster.network.ranks_per_node,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device, Program};
    use shapes::BytesEach;
    use shapes::model::ModelShape;
    use shapes::strategy::Stage;

    fn job() -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        let model = ModelShape::gpt2(48, 6144, 64, 51_200, 2048);
        TrainingJob {
            batch: 64,
            bytes: BytesEach::MIXED,
            ..TrainingJob::new(model, cluster, 64)
        }
    }

    /// Narayanan et al., section 3.2: a layer's 8bsh(t-1)/t numbers per micro-batch, and bsh
    /// between stages.
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
            let strategy = Strategy::data(64, Stage::ALL[zero]);
            job.traffic(&strategy)[2].bytes / (2.0 * job.model.parameters() as f64 * 63.0 / 64.0)
        };
        for (zero, expected) in [(0, 2.0), (1, 2.0), (2, 2.0), (3, 3.0)] {
            assert!((psi(zero) - expected).abs() < 1e-9, "stage {zero}: {}", psi(zero));
        }
    }

    /// Sent bytes are those of lab07's plan, but for what it counts at a model's ends.
    #[test]
    fn zero_traffic_is_lab04s() {
        let job = TrainingJob { batch: 8, bytes: BytesEach::F32, ..job() };
        for zero in 0..4 {
            let strategy = Strategy::data(4, Stage::ALL[zero]);
            let says = shapes::zero_traffic(zero, job.model.parameters(), 4, 4, 2);
            assert!((job.traffic(&strategy)[2].bytes / says - 1.0).abs() < 1e-9, "stage {zero}");
        }
    }

    /// PyTorch's FSDP2, whose calls were counted on 2 x 2 ranks (November 2026, PyTorch 2.15): 1.49
    /// of the parameters' bytes within a group, and 0.50 between the groups. It does not gather the
    /// last layer again for the backward pass, which is why it is less than 1.5.
    #[test]
    fn groups_send_what_pytorch_counted() {
        let job = TrainingJob {
            bytes: BytesEach::F32,
            program: Program::Pytorch,
            batch: 4,
            ..job()
        };
        let hybrid: Strategy = "dp=4,zero=3,shard=2".parse().unwrap();
        let all = 4.0 * job.model.parameters() as f64;
        let [.., within] = job.traffic(&hybrid);
        let between = job.replica_traffic(&hybrid);
        assert!((within.bytes / all - 1.49).abs() < 0.011, "{}", within.bytes / all);
        assert!((between.bytes / all - 0.50).abs() < 0.005, "{}", between.bytes / all);
        // And a fourth of what ZeRO divides on four ranks is a half.
        let [hybrid, whole] = [hybrid, Strategy { replicas: 1, ..hybrid }];
        let state = |s| {
            let load = job.load(&s);
            load.state()
        };
        assert!((state(hybrid) / state(whole) - 2.0).abs() < 1e-6);
    }

    /// Megatron-LM gathers a layer's two inputs again, PyTorch keeps them: five all-reduces or
    /// four.
    #[test]
    fn sequence_parallelism_is_one_programs() {
        let bytes = |program| {
            let job = TrainingJob { program, ..job() };
            let strategy: Strategy = "dp=8,tp=8,sp".parse().unwrap();
            (job.traffic(&strategy)[0].bytes, job.load(&strategy).activations)
        };
        let (sent, kept) = bytes(Program::Megatron);
        let (sent_less, kept_more) = bytes(Program::Pytorch);
        let layers = 48.0;
        assert!((sent / sent_less - (5.0 * layers + 2.0) / (4.0 * layers + 2.0)).abs() < 1e-9);
        assert!(kept_more > 1.2 * kept, "{kept_more}, {kept}");
    }
}
