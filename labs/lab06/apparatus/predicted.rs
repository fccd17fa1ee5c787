//! A schedule's time and memory, predicted.

use anyhow::Result;
use kit::show::{Activity, Bar};
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Simulated, Times, Work, simulate_with};

/// The pipeline of a strategy of this lab, all of which name their micro-batches.
pub fn pipeline_of(strategy: &Strategy) -> Pipeline {
    strategy.pipeline(1)
}

/// A schedule on its pipeline, simulated.
pub struct Predicted {
    pub pipeline: Pipeline,
    pub schedule: Schedule,
    /// The times of each kind of pass: with different ranks, their mean.
    pub times: Times,
    pub orders: Vec<Vec<Op>>,
    /// Each rank's passes, to draw them.
    pub bars: Vec<Vec<Bar>>,
    pub simulated: Simulated,
}

impl Predicted {
    /// If rank `r` takes `took(r, op)` seconds for a pass. `times` are the means.
    pub fn new(
        schedule: Schedule,
        pipeline: Pipeline,
        times: Times,
        took: impl Fn(usize, Op) -> f64,
    ) -> Result<Predicted> {
        let orders = schedule.orders(&pipeline)?;
        let simulated = simulate_with(&pipeline, &orders, &took, times.message)?;
        let mut bars = Vec::new();
        for (rank, (order, starts)) in orders.iter().zip(&simulated.starts).enumerate() {
            let passes = order.iter().zip(starts);
            let drawn = passes.map(|(&op, &start)| bar(op, start, start + took(rank, op)));
            bars.push(drawn.collect());
        }
        Ok(Predicted { pipeline, schedule, times, orders, bars, simulated })
    }

    /// A strategy's step, if a rank's forward pass takes `forward` seconds, and its backward pass
    /// twice as long.
    pub fn of(strategy: &Strategy, forward: f64) -> Result<Predicted> {
        Predicted::paced(strategy.schedule(), pipeline_of(strategy), forward)
    }

    /// The same for a schedule on its pipeline.
    pub fn paced(schedule: Schedule, pipeline: Pipeline, forward: f64) -> Result<Predicted> {
        let times = paced(schedule, pipeline.chunks, forward);
        Predicted::new(schedule, pipeline, times, |_, op| times.of(op.work))
    }

    /// The bubble as a share of the step by the schedule's formula, and the formula. `None` if no
    /// formula holds: an interleaved pipeline whose micro-batches do not come in groups of all
    /// ranks.
    pub fn formula(&self) -> Option<(f64, &'static str)> {
        let Pipeline { ranks, chunks, micro_batches } = self.pipeline;
        let others = (ranks - 1) as f64;
        let visits = (micro_batches * chunks) as f64;
        let Times { forward, backward, weights, .. } = self.times;
        match self.schedule {
            Schedule::GPipe | Schedule::OneForwardOneBackward => {
                Some((others / (visits + others), "(p-1)/(m+p-1)"))
            }
            Schedule::Interleaved { .. } if micro_batches % ranks == 0 => {
                Some((others / (visits + others), "(p-1)/(mv+p-1)"))
            }
            Schedule::ZeroBubble if micro_batches >= ranks => {
                let idle = others * (forward + backward - weights);
                let busy = visits * (forward + backward + weights);
                Some((idle / (busy + idle), "(p-1)(F+B-W)/(m(F+B+W)+(p-1)(F+B-W))"))
            }
            _ => None,
        }
    }
}

/// The times of a pass through one of `chunks` chunks, if a rank's forward pass takes `forward` and
/// its backward pass twice as long. A schedule with passes for weights divides the backward pass
/// into two halves.
pub(super) fn paced(schedule: Schedule, chunks: usize, forward: f64) -> Times {
    let forward = forward / chunks as f64;
    let (backward, weights) = match schedule {
        Schedule::ZeroBubble => (forward, forward),
        _ => (2.0 * forward, 0.0),
    };
    Times { forward, backward, weights, message: 0.0 }
}

pub(super) fn bar(op: Op, start: f64, end: f64) -> Bar {
    let activity = match op.work {
        Work::Forward => Activity::FORWARD,
        Work::Backward => Activity::BACKWARD,
        Work::Weights => Activity::WEIGHTS,
    };
    Bar { activity, chunk: op.chunk, number: op.micro, start, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Wherever a formula is printed, the simulator agrees with it.
    #[test]
    fn formulas_hold() {
        let mut compared = BTreeSet::new();
        for (ranks, micro_batches) in (1..=6).flat_map(|p| (1..=13).map(move |m| (p, m))) {
            for chunks in 1..=3 {
                let pipeline = Pipeline { ranks, chunks, micro_batches };
                let groups = (1..=micro_batches).map(|group| Schedule::Interleaved { group });
                let plain =
                    [Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble];
                for schedule in plain
                    .into_iter()
                    .chain(groups)
                    .filter(|schedule| schedule.check(&pipeline).is_ok())
                {
                    let predicted = Predicted::paced(schedule, pipeline, 1.0).unwrap();
                    let Some((formula, words)) = predicted.formula() else {
                        continue;
                    };
                    let bubble = predicted.simulated.bubble();
                    assert!(
                        (bubble - formula).abs() < 1e-9,
                        "{pipeline:?} {schedule:?} {words}: {bubble} {formula}"
                    );
                    compared.insert(words);
                }
            }
        }
        assert_eq!(compared.len(), 3, "formulas that hold: {compared:?}");
    }
}
