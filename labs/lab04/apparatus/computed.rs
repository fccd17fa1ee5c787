//! One step of a ZeRO stage by arithmetic: what a rank computes, what its link carries, and when.

use kit::show::{Activity, Interval};
use shardlab::comm::algorithms::Collective;
use shardlab::plan::ModelShape;

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
        let start = self.seconds();
        let end = ready.max(start);
        self.processor.push(Interval { activity: Activity::WAITING, start, end });
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
    let of_block = shape.layer_parameters(0);
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
            let takes = seconds(Collective::AllGather, size(next_unit));
            arrived[next] = step.carry(next_unit, A::GATHER, ready, takes);
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
    use shardlab::plan::{Family, zero_volumes};

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
            experts: None,
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
            experts: None,
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
