//! All bytes that a rank holds.

use crate::{Degrees, Offloaded, Program, Recompute, Strategy, TrainingJob};
use shapes::model::{Family, ModelShape};
use shapes::strategy::Exchange;
use shapes::{AttentionScores, BytesEach, DropoutMasks, Kept, zero_memory};

/// The bytes of a rank, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Load {
    pub weights: f64,
    pub gradients: f64,
    pub optimizer: f64,
    /// Kept by the forward passes in flight.
    pub activations: f64,
    /// The result of a pipeline's pass that waits to be sent: this library copies it out of the
    /// graph.
    pub messages: f64,
    /// Gathered layers, and the layer that is being recomputed.
    pub working: f64,
    /// In the host's memory.
    pub host: f64,
}

impl Load {
    /// Weights, gradients and the optimizer's state on the device.
    pub fn state(&self) -> f64 {
        self.weights + self.gradients + self.optimizer
    }

    /// The bytes on the device by name, the state's first.
    pub fn parts(&self) -> [(&'static str, f64); 6] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("optimizer", self.optimizer),
            ("activations", self.activations),
            ("messages", self.messages),
            ("working", self.working),
        ]
    }

    /// Bytes on the device.
    pub fn total(&self) -> f64 {
        self.state() + self.activations + self.messages + self.working
    }
}

/// Bytes per token that the forward pass writes on a rank, whatever is recomputed later: with the
/// scores.
pub(super) fn written(kept: &Kept, strategy: &Strategy) -> f64 {
    let tensor = strategy.tensor;
    kept.on_a_rank(tensor, strategy.stream()) + kept.scores / tensor as f64
}

/// How many tensors of the MLP's inner width a block keeps: two factors and their product if it is
/// gated, else what goes into the activation function and what comes out.
pub(super) fn mlp_results(model: &ModelShape) -> f64 {
    if model.dense().gated { 3.0 } else { 2.0 }
}

impl TrainingJob {
    /// The activations that one block keeps if nothing is computed again.
    pub(super) fn kept(&self, strategy: &Strategy) -> Kept {
        let scores = if self.flash {
            AttentionScores::None
        } else {
            AttentionScores::Kept
        };
        let masks = if self.dropout {
            DropoutMasks::Kept
        } else {
            DropoutMasks::None
        };
        let mut kept = Kept::of(&self.model, self.element(), scores, masks);
        // This library's GPT counts its gathered inputs in any case. Of the other models the norms'
        // results, which matrices read, are divided like the stream, or whole on every rank.
        // Attention and MLP read two of them, or one.
        if strategy.sequence && self.program.keeps_gathered() && self.model.family != Family::Gpt {
            let shared = self.model.dense().norms == [1, 0];
            let inputs = if shared { 1.0 } else { 2.0 } * kept.input;
            kept.stream -= inputs;
            kept.whole += inputs;
        }
        kept
    }

    /// Bytes per token of a block that a rank discards after the forward pass, because they are
    /// quickly computed again: the results of its norms and of the activation function, or an MLP
    /// from its norm on. Of a norm after attention or the MLP nothing but its input is kept.
    pub(super) fn discarded(&self, strategy: &Strategy) -> f64 {
        let kept = self.kept(strategy);
        let norm = if kept.whole > 0.0 {
            kept.input
        } else {
            kept.input / strategy.stream() as f64
        };
        let norms = self.model.dense().norms[0] as f64;
        let wide = self.element() * self.model.ffn() as f64 / strategy.tensor as f64;
        match strategy.recompute {
            Recompute::Selective => kept.scores / strategy.tensor as f64,
            Recompute::Norms if self.program.recomputes_activations() => norms * norm + wide,
            Recompute::Norms => norms * norm,
            // Attention's norm stays.
            Recompute::Mlp => (norms - 1.0).max(0.0) * norm + mlp_results(&self.model) * wide,
            Recompute::None | Recompute::OneIn(_) | Recompute::Full | Recompute::Blocks(_) => 0.0,
        }
    }

    /// Bytes per token that a layer keeps on a rank, as a mean of all layers.
    pub fn keeps(&self, strategy: &Strategy) -> f64 {
        let kept = self.kept(strategy);
        let all = written(&kept, strategy) - self.discarded(strategy);
        // A layer that is computed again keeps its input, in 16 bits 2sbh. Sequence parallelism
        // divides it.
        let input = kept.input / strategy.stream() as f64;
        let again = strategy.whole_layers();
        again * input + (1.0 - again) * all
    }
}

impl TrainingJob {
    /// Bytes per token that Ulysses keeps beside: attention's results by heads, which its backward
    /// pass reads.
    fn exchanged(&self, strategy: &Strategy) -> f64 {
        let s = strategy;
        if s.context == 1 || s.exchange != Exchange::Ulysses {
            return 0.0;
        }
        let width = self.model.q_width() as f64 / s.tensor as f64;
        (1.0 - s.whole_layers()) * self.element() * width
    }

    /// Bytes of other ranks' keys and values in one layer's backward pass, with their gradients:
    /// all of them, or two blocks.
    fn keys_of_others(&self, strategy: &Strategy) -> f64 {
        let s = strategy;
        let blocks = match s.exchange {
            _ if s.context == 1 => 0.0,
            Exchange::Gather => s.context as f64,
            Exchange::Ring => 2.0,
            Exchange::Ulysses => 0.0,
        };
        let keys = (self.model.kv_heads() * self.model.head()) as f64 / s.tensor as f64;
        let each = self.element() + self.bytes.gradient as f64;
        blocks * 2.0 * s.tokens(self.model.block) * keys * each
    }
}

/// Micro-batches whose activations a stage keeps at most, in units of all its layers. With 1F1B
/// they are p - stage. With interleaved chunks they are p (1 + (p-1)/(pv)) on the first stage
/// (Korthikanti et al., section 4.2.3). If there are fewer micro-batches, all are in flight.
pub fn in_flight(strategy: &Strategy, stage: usize, micro_batches: usize) -> f64 {
    let p = strategy.pipeline;
    let v = strategy.chunks;
    let m = micro_batches;
    if v == 1 {
        return m.min(p - stage) as f64;
    }
    // The forward passes of chunks before the first backward pass, and the one that comes with it.
    let ahead = 2 * (p - stage - 1) + (v - 1) * p + 1;
    ahead.min(m * v) as f64 / v as f64
}

impl TrainingJob {
    /// The most that any rank holds: of the first two stages, which have most micro-batches in
    /// flight, and the last, which has the logits.
    pub fn load(&self, strategy: &Strategy) -> Load {
        let of = |rank| self.load_of(strategy, rank);
        let all = strategy.heaviest_ranks().map(of);
        all.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
    }

    /// Bytes of weights, gradients and optimizer on a rank of a pipeline stage.
    fn state_of(&self, strategy: &Strategy, stage: usize) -> [f64; 3] {
        let held = self.held(strategy, stage) as u64;
        let shard = strategy.shard_ranks() as u64;
        // PyTorch's shards are in f32, and no copy of them in 16 bits lies beside them: the layers
        // in use are gathered in 16 bits. So 16 bytes, not 18; where 16 are asked for, they are as
        // many.
        let bytes = match strategy.zero.number() {
            3 if self.program == Program::Pytorch && self.bytes == BytesEach::MEGATRON => {
                BytesEach::F32
            }
            _ => self.bytes,
        };
        zero_memory(strategy.zero.number(), held, shard, bytes).map(|n| n as f64)
    }

    /// The bytes of a rank of a pipeline stage.
    pub fn load_of(&self, strategy: &Strategy, stage: usize) -> Load {
        let model = &self.model;
        let s = strategy;
        let first = stage == 0;
        let last = stage + 1 == s.pipeline;
        let [weights, gradients, optimizer] = self.state_of(s, stage);

        let tokens = s.tokens(model.block);
        let h = model.embd as f64;
        let element = self.element();
        let kept = self.kept(s);
        let each = self.keeps(s) + self.exchanged(s);
        let layers = s.layers_of(model.layers, stage) as f64 * each * tokens;
        let flying = in_flight(s, stage, s.micro_batches_of(self.batch));
        // Before the first layer: a mask of the embedding's dropout. Here also the embedding or the
        // message from the stage before, if the first layer does not keep it to be recomputed, and
        // each chunk's result, except for the last, which is the head's.
        let ends = match model.family {
            Family::Gpt => {
                let input = usize::from(s.recompute != Recompute::Full);
                element * (input + s.chunks - usize::from(last)) as f64
            }
            _ if first && self.dropout && model.dense().dropout => 1.0,
            _ => 0.0,
        };
        let ends = ends * flying * tokens * h / s.stream() as f64;
        let messages = match model.family {
            Family::Gpt if !last => element * tokens * h / s.stream() as f64,
            _ => 0.0,
        };
        // After the last one: its norm, the head's input, and logits in f32. Copies of the logits
        // come and go.
        let logits = tokens * model.logits() as f64 / s.tensor as f64;
        let (head, copies) = if last {
            let inputs = 2.0 * tokens * h * element / s.stream() as f64;
            (4.0 * logits + inputs, self.program.passing_logit_bytes() * logits)
        } else {
            (0.0, 0.0)
        };
        let activations = flying * layers + ends + head;

        // A layer that is computed again has all that its forward pass writes, while no logits are
        // there.
        let recomputed = match s.whole_layers() {
            0.0 => self.discarded(s) * tokens,
            _ => written(&kept, s) * tokens,
        };
        // ZeRO-3 gathers the next layer while it uses one, and reduces a layer's gradients;
        // offloaded parameters pass through the same buffers.
        let gathers =
            s.zero.number() == 3 && (s.gradient_ranks() > 1 || s.offload == Offloaded::Parameters);
        let gathered = if gathers {
            let each = 3.0 * self.bytes.parameter as f64;
            each * model.largest_layer() as f64 / s.tensor as f64
        } else {
            0.0
        };
        let working = recomputed.max(copies) + gathered + self.keys_of_others(s);

        let keeps = |bytes: f64, until: Offloaded| if s.offload < until { bytes } else { 0.0 };
        let state = weights + gradients + optimizer;
        let [weights, gradients] =
            [weights, gradients].map(|bytes| keeps(bytes, Offloaded::Parameters));
        let optimizer = keeps(optimizer, Offloaded::Optimizer);
        Load {
            weights,
            gradients,
            optimizer,
            activations,
            messages,
            working,
            host: state - weights - gradients - optimizer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device, Program};
    use shapes::BytesEach;
    use shapes::model::{Dense, ModelShape};
    use shapes::strategy::Stage;

    fn job(model: ModelShape, devices: usize) -> TrainingJob {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        TrainingJob { flash: false, ..TrainingJob::new(model, cluster, devices) }
    }

    /// ZeRO's figure 1: 7.5 billion parameters on 64 ranks, 16 bytes each.
    #[test]
    fn weights_gradients_and_optimizer_are_zeros_table() {
        // A model with 7.5 billion parameters, near enough: the share of each stage is what counts.
        let model = ModelShape::gpt2(36, 4096, 32, 51_200, 2048);
        let job = TrainingJob { bytes: BytesEach::MIXED, ..job(model, 64) };
        let held = |zero| {
            let load = job.load(&Strategy::data(64, Stage::ALL[zero]));
            load.state() / model.parameters() as f64 * 7.5
        };
        for (stage, gigabytes) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            assert!((held(stage) - gigabytes).abs() < 0.05, "stage {stage}: {}", held(stage));
        }
    }

    /// Norms before attention and the MLP can be computed again; of those after them only inputs
    /// are kept. What both read is gathered once. Heads wider than the model are sent whole.
    #[test]
    fn norms_are_discarded_and_gathered_where_they_are() {
        let of = |norms: [usize; 2], parallel: bool| {
            let dense = Dense { norms, parallel, ..Dense::llama(8, 128, 2048) };
            let shape = ModelShape::gpt2(2, 512, 8, 32_000, 1024);
            job(ModelShape { family: Family::Dense(dense), ..shape }, 4)
        };
        let norm = 2.0 * 512.0;
        for (norms, parallel, discarded, gathered) in [
            ([2, 0], false, 2.0, 2.0),
            ([0, 2], false, 0.0, 2.0),
            ([2, 2], false, 2.0, 2.0),
            ([2, 0], true, 2.0, 2.0),
            ([1, 0], true, 1.0, 1.0),
        ] {
            let strategy: Strategy = "tp=4,recompute=norms".parse().unwrap();
            let job = of(norms, parallel);
            assert_eq!(job.discarded(&strategy), discarded * norm, "{norms:?}");
            let mlp: Strategy = "tp=4,recompute=mlp".parse().unwrap();
            let of_mlp = job.discarded(&mlp) - 3.0 * 2.0 * 2048.0 / 4.0;
            assert_eq!(of_mlp, (discarded - 1.0).max(0.0) * norm);
            let pytorch = TrainingJob { program: Program::Pytorch, ..job };
            let strategy: Strategy = "tp=4,sp".parse().unwrap();
            assert_eq!(pytorch.kept(&strategy).whole, gathered * norm, "{norms:?}");
        }
        let ulysses: Strategy = "cp=4,cp-comm=ulysses".parse().unwrap();
        assert_eq!(of([2, 0], false).exchanged(&ulysses), 2.0 * 8.0 * 128.0);
    }

    /// The factor of the paper.
    #[test]
    fn the_first_stage_has_all_layers_in_flight() {
        let of =
            |pipeline, chunks| in_flight(&Strategy { pipeline, chunks, ..Strategy::SINGLE }, 0, 64);
        assert_eq!([of(4, 1), of(1, 1), of(4, 2)], [4.0, 1.0, 5.5]);
        assert!((of(35, 3) - 35.0 * (1.0 + 34.0 / 105.0)).abs() < 1e-12);
        let eight = Strategy { pipeline: 8, ..Strategy::SINGLE };
        assert_eq!(in_flight(&eight, 0, 3), 3.0);
        assert_eq!(in_flight(&eight, 7, 64), 1.0);
    }

    #[test]
    fn offloading_moves_bytes_to_the_host() {
        let job = job(ModelShape::gpt2(48, 6144, 64, 51_200, 2048), 1);
        let on = |offload, zero| {
            job.load(&Strategy { offload, zero: Stage::ALL[zero], ..Strategy::SINGLE })
        };
        let none = on(Offloaded::None, 0);
        let optimizer = on(Offloaded::Optimizer, 0);
        let all = on(Offloaded::Parameters, 3);
        assert_eq!((optimizer.optimizer, optimizer.host), (0.0, none.optimizer));
        let state = none.state();
        assert_eq!((all.weights, all.gradients, all.host), (0.0, 0.0, state));
        assert!(all.working >= 3.0 * 2.0 * job.model.largest_layer() as f64);
    }

    /// Table 2, line by line.
    #[test]
    fn the_papers_table() {
        for (a, h) in [(96usize, 12_288usize), (128, 20_480), (64, 6144)] {
            let model = ModelShape::gpt2(1, h, a, 51_200, 2048);
            let job = job(model, 8);
            let scores = 5.0 * (a * 2048) as f64 / h as f64;
            let one = Strategy::SINGLE;
            let t8 = Strategy { tensor: 8, ..one };
            let sp = Strategy { sequence: true, ..t8 };
            let with = |recompute, strategy: Strategy| {
                let strategy = Strategy { recompute, ..strategy };
                job.keeps(&strategy) / h as f64
            };
            use Recompute::{Full, None, Selective};
            for (is, formula) in [
                (with(None, one), 34.0 + scores),
                (with(None, t8), 10.0 + 24.0 / 8.0 + scores / 8.0),
                (with(None, sp), (34.0 + scores) / 8.0),
                (with(Selective, t8), 10.0 + 24.0 / 8.0),
                (with(Selective, sp), 34.0 / 8.0),
                (with(Full, t8), 2.0),
            ] {
                assert!((is - formula).abs() < 1e-9 * formula, "{is} is not {formula}");
            }
        }
        assert_eq!(
            Kept::of(
                &ModelShape::gpt2(1, 12_288, 96, 1, 2048),
                2.0,
                AttentionScores::Kept,
                DropoutMasks::Kept
            )
            .scores
                / 12_288.0,
            80.0
        );
        assert_eq!(
            Kept::of(
                &ModelShape::gpt2(1, 20_480, 128, 1, 2048),
                2.0,
                AttentionScores::Kept,
                DropoutMasks::Kept
            )
            .scores
                / 20_480.0,
            64.0
        );
    }

    /// Korthikanti et al.'s figure 7: per cent of what tensor parallelism alone keeps. And in GiB
    /// for the 22-billion model.
    #[test]
    fn the_papers_figure() {
        let gib = |strategy: &Strategy| {
            let model = ModelShape::gpt2(48, 6144, 64, 51_200, 2048);
            let tokens = (4 * 2048) as f64 * 48.0;
            job(model, 8).keeps(strategy) * tokens / f64::from(1 << 30)
        };
        let t8 = Strategy { tensor: 8, ..Strategy::SINGLE };
        let sp = Strategy { sequence: true, ..t8 };
        let selective = Strategy { recompute: Recompute::Selective, ..sp };
        for (strategy, expected) in
            [(Strategy::SINGLE, 316.5), (t8, 59.25), (sp, 39.56), (selective, 9.56)]
        {
            assert!((gib(&strategy) - expected).abs() < 0.01, "{}", gib(&strategy));
        }
        assert_eq!(gib(&Strategy { recompute: Recompute::Full, ..t8 }), 4.5);
        assert!(
            (gib(&sp) / gib(&t8) - 0.6684).abs() < 0.002
                && (gib(&selective) / gib(&t8) - 0.1618).abs() < 0.002
        );
    }

    /// A vocabulary of 128,256 on one tensor rank: 4 bytes per logit are kept, and 2 come and go in
    /// Megatron-LM, 6 in PyTorch.
    #[test]
    fn logits_are_as_many_as_programs_hold() {
        let model = ModelShape::gpt2(2, 1024, 16, 128_256, 2048);
        let logits = 2048.0 * 128_256.0;
        let of = |program| {
            let job = TrainingJob { program, ..job(model, 1) };
            job.load(&Strategy::SINGLE)
        };
        let [megatron, pytorch] = [Program::Megatron, Program::Pytorch].map(of);
        assert_eq!(megatron.working, 2.0 * logits);
        assert_eq!(pytorch.working, 6.0 * logits);
        assert!(megatron.activations == pytorch.activations && megatron.activations > 4.0 * logits);
    }

    /// Llama 3 405B (arXiv 2407.21783, section 3.3.2): gradients divided as well, the plan fits
    /// into an H100. What is divided is sent after every micro-batch.
    #[test]
    fn zero_2_in_a_pipeline_divides_gradients() {
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        let shape = ModelShape {
            block: 8192,
            ..shapes::llamas::named("llama-3.1-405b").unwrap()
        };
        let job = TrainingJob { batch: 2048, ..TrainingJob::new(shape, cluster, 8192) };
        let of = |plan: &str| job.load(&plan.parse().unwrap());
        let [one, two] = [1, 2].map(|zero| of(&format!("dp=64,tp=8,pp=16,zero={zero},sp")));
        assert!((two.gradients / one.gradients * 64.0 - 1.0).abs() < 1e-6);
        let room = job.cluster.device.room();
        assert!(one.total() > room && two.total() < room, "{one:?}, {two:?}");
        assert!((two.total() / 71.1e9 - 1.0).abs() < 1e-3, "{two:?}");
        let sent = |plan: &str| job.traffic(&plan.parse().unwrap())[2].bytes;
        // Of 4 + 2 bytes the gradients' 4 are sent 32 times.
        let times = sent("dp=64,tp=8,pp=16,zero=2,sp") / sent("dp=64,tp=8,pp=16,zero=1,sp");
        assert!((times - (32.0 * 4.0 + 2.0) / 6.0).abs() < 1e-9, "{times}");
    }

    /// Shards in f32, 4 + 4 + 8, and no copy in 16 bits beside them; Megatron-LM's are 2 + 4 + 12.
    #[test]
    fn pytorchs_shards_take_16_bytes() {
        let of = |program, zero| {
            let job = TrainingJob {
                program,
                ..job(ModelShape::gpt2(48, 6144, 64, 51_200, 2048), 64)
            };
            let strategy = Strategy::data(64, Stage::ALL[zero]);
            let load = job.load(&strategy);
            load.state() / job.model.parameters() as f64 * 64.0
        };
        assert!((of(Program::Pytorch, 3) - 16.0).abs() < 1e-6);
        assert!((of(Program::Megatron, 3) - 18.0).abs() < 1e-6);
        // With stages 1 and 2 the gathered layers stay, in 16 bits: the same bytes.
        assert_eq!(of(Program::Pytorch, 2), of(Program::Megatron, 2));
    }

    /// What is computed again is not kept, and the more of it the less is kept.
    #[test]
    fn parts_of_layers_can_be_recomputed() {
        let mut job = job(ModelShape::gpt2(48, 6144, 64, 51_200, 2048), 64);
        job.flash = true;
        job.program = Program::Pytorch;
        let kept = |plan: &str| job.keeps(&plan.parse().unwrap()) / 6144.0;
        let scale = |plan: &str| (kept(plan) * 1e6).round() / 1e6;
        // 34 bytes: of them 4 are two norms' results, 8 the result of GELU, and 16 the MLP's both.
        assert_eq!(scale("mb=1"), 34.0);
        assert_eq!(scale("recompute=norms"), 34.0 - 4.0 - 8.0);
        assert_eq!(scale("recompute=mlp"), 34.0 - 2.0 - 16.0);
        assert_eq!(scale("recompute=1/2"), (34.0 + 2.0) / 2.0);
        assert_eq!(scale("recompute=1/4"), (3.0 * 34.0 + 2.0) / 4.0);
        assert_eq!(scale("recompute=full"), 2.0);
        // Gathered inputs are whole on each rank, unless they are computed again.
        assert_eq!(scale("tp=8,sp"), 4.0 + 30.0 / 8.0);
        assert_eq!(scale("tp=8,sp,recompute=norms"), 22.0 / 8.0);
        let megatron = TrainingJob { program: Program::Megatron, ..job.clone() };
        let of = |plan: &str| (megatron.keeps(&plan.parse().unwrap()) / 6144.0 * 1e6).round() / 1e6;
        assert_eq!([of("recompute=norms"), of("tp=8,sp")], [30.0, 34.0 / 8.0]);
        let time = |plan: &str| job.time(&plan.parse().unwrap()).recompute;
        let all = time("dp=64,recompute=full");
        assert!((time("dp=64,recompute=1/2") / all - 0.5).abs() < 1e-9);
        assert!(time("dp=64,recompute=norms") < 0.1 * all);
        assert!((0.2..0.5).contains(&(time("dp=64,recompute=mlp") / all)));
    }
}
