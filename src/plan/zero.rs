//! ZeRO's stages by arithmetic: memory, traffic, and the time of a step.
//!
//! Source: Rajbhandari et al., *ZeRO: Memory Optimizations Toward Training Trillion Parameter
//! Models* (arXiv 1910.02054), figure 1 and section 7.

use super::ModelShape;
use crate::comm::algorithms::Collective;
use crate::plan::{Activity, Interval};

/// Bytes per parameter: the parameter, its gradient, and its optimizer state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BytesEach {
    pub parameter: u64,
    pub gradient: u64,
    pub optimizer: u64,
}

impl BytesEach {
    /// All in f32: 4 + 4 and AdamW's two moments.
    pub const F32: BytesEach = BytesEach { parameter: 4, gradient: 4, optimizer: 8 };
    /// Mixed precision: 2 + 2, two moments in f32, and the f32 master of the parameter. The paper's
    /// 2 + 2 + K with K = 12.
    pub const MIXED: BytesEach = BytesEach { parameter: 2, gradient: 2, optimizer: 12 };
    /// The same with gradients in f32, as Megatron-LM adds them up: 18 bytes.
    pub const MEGATRON: BytesEach = BytesEach { gradient: 4, ..BytesEach::MIXED };

    /// Bytes per parameter on each rank if `data` ranks divide the optimizer's state: ZeRO-1,
    /// Megatron-LM's distributed optimizer. With 1, no rank divides it.
    pub fn on_a_rank(&self, data: usize) -> f64 {
        (self.parameter + self.gradient) as f64 + self.optimizer as f64 / data as f64
    }
}

/// Bytes that one of `ranks` ranks holds of a model of `numel` parameters: parameters, gradients,
/// optimizer state. Stage 1 shards the optimizer state, stage 2 also the gradients, stage 3 also
/// the parameters. Padding and temporary buffers are not counted.
pub fn zero_memory(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let share = |bytes: u64, from: usize| {
        if stage >= from {
            (bytes * numel).div_ceil(ranks)
        } else {
            bytes * numel
        }
    };
    [share(each.parameter, 3), share(each.gradient, 2), share(each.optimizer, 1)]
}

/// The part of [`zero_memory`] that stays in memory when the optimizer state, and in stage 3 the
/// parameters, are in files.
pub fn zero_memory_offloaded(stage: usize, numel: u64, ranks: u64, each: BytesEach) -> [u64; 3] {
    let [parameters, gradients, _] = zero_memory(stage, numel, ranks, each);
    [if stage == 3 { 0 } else { parameters }, gradients, 0]
}

/// How often one step reduces all gradients and gathers all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroVolumes {
    pub reduced: u64,
    pub gathered: u64,
}

impl ZeroVolumes {
    /// Both together.
    pub fn total(&self) -> u64 {
        self.reduced + self.gathered
    }
}

/// How often one step reduces all gradients and gathers all parameters. Stage 0 gathers the
/// averaged gradients instead: an all-reduce is a reduction and a gather. Stages 2 and 3 have no
/// room for whole gradients, so they reduce in every micro-step, and stage 3 gathers for each
/// forward and each backward pass.
pub fn zero_volumes(stage: usize, micro_steps: u64) -> ZeroVolumes {
    match stage {
        0 | 1 => ZeroVolumes { reduced: 1, gathered: 1 },
        2 => ZeroVolumes { reduced: micro_steps, gathered: 1 },
        _ => ZeroVolumes { reduced: micro_steps, gathered: 2 * micro_steps },
    }
}

/// Bytes that each of `ranks` ranks sends per step, on average: (n-1)/n of the [`zero_volumes`] of
/// a model of `numel` numbers of `bytes` bytes.
pub fn zero_traffic(stage: usize, numel: u64, ranks: u64, bytes: u64, micro_steps: u64) -> f64 {
    let volumes = zero_volumes(stage, micro_steps).total();
    (volumes * numel * bytes) as f64 * (ranks - 1) as f64 / ranks as f64
}

/// One step of one rank, computed.
#[derive(Default)]
pub struct ComputedStep {
    /// The rank's processor: its passes, and its waiting.
    pub processor: Vec<Interval>,
    /// The rank's link, which carries one collective at a time.
    pub link: Vec<Interval>,
    /// The processor and the link at work for the token table (unit 0) and for each block.
    pub units: Vec<Vec<Interval>>,
}

impl ComputedStep {
    /// When the step ends.
    pub fn seconds(&self) -> f64 {
        self.processor.last().map_or(0.0, |last| last.end)
    }

    /// How long the processor waits.
    pub fn waiting(&self) -> f64 {
        let waits = self.processor.iter().filter(|interval| interval.activity == Activity::WAITING);
        waits.map(|interval| interval.end - interval.start).sum()
    }

    /// The link carries a collective for a unit, once the link is free. Returns when the collective
    /// ends.
    fn carry(&mut self, unit: usize, activity: Activity, ready: f64, seconds: f64) -> f64 {
        let start = self.link.last().map_or(ready, |last| last.end.max(ready));
        let interval = Interval { activity, start, end: start + seconds };
        self.link.push(interval);
        self.units[unit].push(interval);
        interval.end
    }

    /// The processor waits until `ready`.
    fn wait(&mut self, ready: f64) {
        let now = self.seconds();
        self.processor.push(Interval {
            activity: Activity::WAITING,
            start: now,
            end: ready.max(now),
        });
    }

    fn compute(&mut self, unit: usize, activity: Activity, seconds: f64) {
        let start = self.seconds();
        let interval = Interval { activity, start, end: start + seconds };
        self.processor.push(interval);
        self.units[unit].push(interval);
    }
}

/// Computes one step of one rank under a stage of ZeRO. The processor does `speed` FLOPs per second
/// on `tokens` tokens. `seconds` says what a collective over so many elements takes. Stage 3
/// gathers ahead while at most `prefetch` elements are in flight. The optimizer is left out,
/// because it is short, and so is congestion.
pub fn zero_step(
    stage: usize,
    shape: &ModelShape,
    tokens: usize,
    speed: f64,
    prefetch: u64,
    seconds: impl Fn(Collective, u64) -> f64,
) -> ComputedStep {
    use Activity as A;
    let &ModelShape { vocabulary, block, layers, embd, .. } = shape;
    let of_block = shape.per_layer();
    let size = |unit: usize| {
        if unit == 0 {
            shape.parameters() - of_block * layers as u64
        } else {
            of_block
        }
    };
    let takes = |flops: usize| (flops * tokens) as f64 / speed;
    let block = takes(24 * embd * embd + 4 * embd * block);
    let head = takes(2 * vocabulary * embd);

    // Which unit computes, in order. The head is tied to the token table, so the table is used at
    // the beginning and again between the passes. Its last use computes nothing: it completes the
    // table's gradient.
    let mut uses = vec![(0, A::FORWARD, 0.0)];
    uses.extend((1..=layers).map(|unit| (unit, A::FORWARD, block)));
    uses.extend([(0, A::FORWARD, head), (0, A::BACKWARD, 2.0 * head)]);
    uses.extend((1..=layers).rev().map(|unit| (unit, A::BACKWARD, 2.0 * block)));
    let asks = |&i: &usize| stage == 3 && (i == 0 || uses[i].0 != uses[i - 1].0);
    let gathers: Vec<usize> = (0..uses.len()).filter(asks).collect();
    uses.push((0, A::BACKWARD, 0.0));

    let mut step = ComputedStep {
        units: vec![Vec::new(); layers + 1],
        ..ComputedStep::default()
    };
    let mut started = 0;
    let mut arrived = vec![0.0; uses.len()];
    for (i, &(unit, activity, takes)) in uses.iter().enumerate() {
        // First this use's gather, unless it has started, and then those that may start while it
        // computes.
        while let Some(&next) = gathers.get(started) {
            let ahead = gathers[..=started].iter().filter(|&&gather| gather > i);
            let in_use = next > i && uses[next].0 == unit;
            if in_use || ahead.map(|&gather| size(uses[gather].0)).sum::<u64>() > prefetch {
                break;
            }
            let next_unit = uses[next].0;
            let ready = step.seconds().max(arrived[i]);
            arrived[next] = step.carry(
                next_unit,
                A::GATHER,
                ready,
                seconds(Collective::AllGather, size(next_unit)),
            );
            started += 1;
        }
        step.wait(arrived[i]);
        step.compute(unit, activity, takes);
        if activity == A::BACKWARD && (unit > 0 || i + 1 == uses.len()) {
            let (collective, activity) = match stage {
                0 => (Collective::AllReduce, A::ALL_REDUCE),
                _ => (Collective::ReduceScatter, A::REDUCE_SCATTER),
            };
            step.carry(unit, activity, step.seconds(), seconds(collective, size(unit)));
        }
    }
    if stage == 1 || stage == 2 {
        for unit in 0..=layers {
            step.carry(unit, A::GATHER, step.seconds(), seconds(Collective::AllGather, size(unit)));
        }
    }
    step.wait(step.link.last().map_or(0.0, |last| last.end));
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Family;

    /// The paper's figure 1 and table 1: 7.5 billion parameters, GB = 1e9 bytes.
    #[test]
    fn the_papers_table() {
        let gb = |stage, ranks| {
            zero_memory(stage, 7_500_000_000, ranks, BytesEach::MIXED).iter().sum::<u64>() as f64
                / 1e9
        };
        for (stage, paper) in [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)] {
            let is = gb(stage, 64);
            assert_eq!((is * 10.0).round() / 10.0, paper, "stage {stage}: {is}");
        }
        for (ranks, one, two, three) in [
            (4, 52.5, 41.25, 30.0),
            (16, 35.625, 21.5625, 7.5),
            (1024, 30.088, 15.103, 0.117),
        ] {
            for (stage, expected) in [(1, one), (2, two), (3, three)] {
                assert!(
                    (gb(stage, ranks) - expected).abs() < 5e-4,
                    "stage {stage} on {ranks}: {}",
                    gb(stage, ranks)
                );
            }
        }
    }

    #[test]
    fn a_distributed_optimizer_divides_twelve_bytes_of_eighteen() {
        assert_eq!([1, 2, 4].map(|data| BytesEach::MEGATRON.on_a_rank(data)), [18.0, 12.0, 9.0]);
        assert_eq!([1, 2, 4].map(|data| BytesEach::F32.on_a_rank(data)), [16.0, 12.0, 10.0]);
        assert_eq!(BytesEach::MIXED.on_a_rank(1), 16.0);
    }

    #[test]
    fn two_ranks_send_the_model_once_and_eight_nearly_twice() {
        let psi = |stage, ranks| zero_traffic(stage, 1000, ranks, 2, 1) / 2000.0;
        assert_eq!(
            [psi(0, 2), psi(1, 8), psi(2, 8), psi(3, 2), psi(3, 8)],
            [1.0, 1.75, 1.75, 1.5, 2.625]
        );
        let four = |stage| zero_traffic(stage, 1000, 4, 2, 4) / 2000.0;
        assert_eq!([0, 1, 2, 3].map(four), [1.5, 1.5, 3.75, 9.0]);
    }

    /// 4 blocks of 49,280 elements. A block's forward pass takes 1 s at this speed, and the table's
    /// collectives no time.
    fn step(stage: usize, prefetch: u64, seconds: f64) -> ComputedStep {
        let shape = ModelShape {
            vocabulary: 1,
            block: 1,
            layers: 4,
            heads: 1,
            embd: 64,
            family: Family::Gpt,
        };
        let speed = (24 * 64 * 64 + 4 * 64) as f64;
        zero_step(
            stage,
            &shape,
            1,
            speed,
            prefetch,
            |_, numel| {
                if numel > 40_000 { seconds } else { 0.0 }
            },
        )
    }

    #[test]
    fn a_computed_step_waits_for_what_its_link_cannot_hide() {
        let about = |step: ComputedStep, seconds: f64, waiting: f64| {
            let is = step.seconds();
            let waits = step.waiting();
            assert!(
                (is - seconds).abs() < 0.02 && (waits - waiting).abs() < 0.02,
                "{is} s, {waits} s waiting"
            );
        };
        // Four blocks forward and, for twice as long, backward.
        for stage in 0..4 {
            about(step(stage, 1 << 20, 0.0), 12.0, 0.0);
        }
        // Without prefetch, every block's gather is waited for, twice; the last reduction, too.
        // Between the passes the link is busy with the previous block's reduction when the next
        // gather is asked for.
        about(step(3, 0, 0.5), 12.0 + 8.0 * 0.5 + 3.0 * 0.5 + 0.5, 6.0);
        // With it, the first block's gather, the last block's second gather, because that block has
        // just been used, and the last reduction.
        about(step(3, 50_000, 0.5), 12.0 + 0.5 + 0.5 + 0.5, 1.5);
        // With stages 0 and 1 the backward pass hides all reductions; only the last one is exposed.
        // Stage 1 gathers at the end.
        about(step(0, 0, 0.5), 12.5, 0.5);
        about(step(1, 0, 0.5), 12.0 + 0.5 + 4.0 * 0.5, 2.5);
    }

    #[test]
    fn a_computed_step_has_the_models_flops_and_the_stages_volumes() {
        let shape = ModelShape {
            vocabulary: 65,
            block: 64,
            layers: 4,
            heads: 4,
            embd: 128,
            family: Family::Gpt,
        };
        for stage in 0..4 {
            let step = zero_step(stage, &shape, 100, 1e9, 1 << 18, |collective, numel| {
                numel as f64 * if collective == Collective::AllReduce { 2.0 } else { 1.0 }
            });
            let sum = |row: &[Interval]| {
                row.iter().map(|interval| interval.end - interval.start).sum::<f64>()
            };
            let is = sum(&step.link);
            let says = (zero_volumes(stage, 1).total() * shape.parameters()) as f64;
            assert!((is / says - 1.0).abs() < 1e-6, "stage {stage}: {is}, {says}");
            // Gains and positions, which flops_per_token counts as matrices, are a hundredth.
            let is = sum(&step.processor) - step.waiting();
            let says = 100.0 * shape.flops_per_token() as f64 / 1e9;
            assert!((is / says - 1.0).abs() < 0.01, "stage {stage}: {is}, {says}");
        }
    }
}
