//! All strategies that the planner knows for a job, ranked by tokens per second.

use super::check::{Refusal, RefusalKind, refusals, too_large};
use crate::strategy::{Load, Offloaded, Recompute, Strategy, Time, TrainingJob};
use std::collections::BTreeMap;

/// A strategy that the job can use, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub strategy: Strategy,
    pub load: Load,
    pub time: Time,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// Every strategy that fits, the fastest first.
    pub plans: Vec<Plan>,
    /// How many strategies were refused for each reason, and one of them.
    pub refused: BTreeMap<RefusalKind, (usize, Strategy, Refusal)>,
    /// The strategy that needs least, for each (dp, tp, pp) with which none fits.
    pub unfit: Vec<Plan>,
    pub considered: usize,
}

/// The largest micro-batch and the most chunks that a search tries.
const MICRO_BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const CHUNKS: [usize; 8] = [1, 2, 3, 4, 5, 6, 8, 10];

impl Search {
    /// The best plan for each (dp, tp, pp), the fastest first.
    pub fn by_degrees(&self) -> Vec<&Plan> {
        let mut seen = Vec::new();
        let fresh = |plan: &&Plan| {
            let Strategy {
                data,
                tensor,
                pipeline,
                ..
            } = plan.strategy;
            let new = !seen.contains(&(data, tensor, pipeline));
            seen.extend(new.then_some((data, tensor, pipeline)));
            new
        };
        self.plans.iter().filter(fresh).collect()
    }

    /// The fastest plan whose strategy is `such`.
    pub fn best(&self, such: impl Fn(&Strategy) -> bool) -> Option<&Plan> {
        self.plans.iter().find(|plan| such(&plan.strategy))
    }

    /// If nothing fits: the strategy that needs least.
    pub fn smallest(&self) -> Option<&Plan> {
        self.unfit
            .iter()
            .min_by(|a, b| a.load.total().total_cmp(&b.load.total()))
    }

    fn refuse(&mut self, strategy: Strategy, refusal: Refusal) {
        self.refused
            .entry(refusal.kind)
            .or_insert((0, strategy, refusal))
            .0 += 1;
    }
}

/// Tries every strategy on all devices of the job. Offloading and tiles are tried if nothing fits without them.
pub fn search(job: &TrainingJob) -> Search {
    let mut found = Search::default();
    let plain = [(Offloaded::None, 1)];
    let offloaded = [
        (Offloaded::Optimizer, 1),
        (Offloaded::Parameters, 1),
        (Offloaded::Parameters, 4),
        (Offloaded::Parameters, 16),
    ];
    for host in [&plain[..], &offloaded[..]] {
        found.unfit.clear();
        for tensor in divisors(job.devices) {
            for pipeline in divisors(job.devices / tensor) {
                let data = job.devices / tensor / pipeline;
                try_degrees(
                    job,
                    &mut found,
                    Strategy {
                        data,
                        tensor,
                        pipeline,
                        ..Strategy::SINGLE
                    },
                    host,
                );
            }
        }
        if !found.plans.is_empty() {
            break;
        }
    }
    // If two are equally fast, the one that takes less memory is first.
    let order = |a: &Plan, b: &Plan| {
        a.time
            .total()
            .total_cmp(&b.time.total())
            .then(a.load.total().total_cmp(&b.load.total()))
    };
    found.plans.sort_by(order);
    found
}

/// All strategies with the degrees of `base`.
fn try_degrees(job: &TrainingJob, found: &mut Search, base: Strategy, host: &[(Offloaded, usize)]) {
    let refusals = refusals(job, &base);
    // Heads and layers refuse all strategies of these degrees at once.
    if let Some(refusal) = refusals
        .into_iter()
        .find(|refusal| refusal.kind < RefusalKind::Batch)
    {
        found.considered += 1;
        return found.refuse(base, refusal);
    }
    let zero = if base.data > 1 { 0..=3 } else { 0..=0 };
    let mut all = vec![base];
    let mut vary =
        |values: &dyn Fn(&Strategy) -> Vec<Strategy>| all = all.iter().flat_map(values).collect();
    vary(&|s| {
        host.iter()
            .map(|&(offload, tiles)| Strategy {
                offload,
                tiles,
                ..*s
            })
            .collect()
    });
    vary(&|s| match s.offload {
        Offloaded::Parameters => vec![Strategy { zero: 3, ..*s }],
        _ => zero.clone().map(|zero| Strategy { zero, ..*s }).collect(),
    });
    vary(&|s| {
        let kinds = [Recompute::None, Recompute::Selective, Recompute::Full];
        let kinds = kinds
            .into_iter()
            .filter(|&kind| !(job.flash && kind == Recompute::Selective));
        kinds
            .map(|recompute| Strategy { recompute, ..*s })
            .collect()
    });
    vary(&|s| {
        let both = [false, true]
            .into_iter()
            .filter(|&sequence| !sequence || s.tensor > 1);
        both.map(|sequence| Strategy { sequence, ..*s }).collect()
    });
    vary(&|s| variants(job, s));
    let fit = found.plans.len();
    let too_large: Vec<Plan> = all
        .into_iter()
        .filter_map(|strategy| consider(job, found, strategy))
        .collect();
    if found.plans.len() == fit {
        found.unfit.extend(
            too_large
                .into_iter()
                .min_by(|a, b| a.load.total().total_cmp(&b.load.total())),
        );
    }
}

/// A strategy with each micro-batch and each number of chunks.
fn variants(job: &TrainingJob, s: &Strategy) -> Vec<Strategy> {
    let stage = job.model.layers / s.pipeline;
    let chunks = CHUNKS
        .into_iter()
        .filter(|&chunks| chunks == 1 || s.pipeline > 1 && stage.is_multiple_of(chunks));
    let sizes = || {
        MICRO_BATCHES
            .into_iter()
            .filter(|&size| size == 1 || size * s.data <= job.batch)
    };
    chunks
        .flat_map(|chunks| {
            sizes().map(move |micro_batch| Strategy {
                chunks,
                micro_batch,
                ..*s
            })
        })
        .collect()
}

/// Adds a strategy to the plans or to those that are refused. Returns it if only its memory is refused.
fn consider(job: &TrainingJob, found: &mut Search, strategy: Strategy) -> Option<Plan> {
    found.considered += 1;
    if let Some(refusal) = refusals(job, &strategy).into_iter().next() {
        found.refuse(strategy, refusal);
        return None;
    }
    let plan = Plan {
        strategy,
        load: job.load(&strategy),
        time: job.time(&strategy),
    };
    if let Some(refusal) = too_large(job, &plan.load) {
        found.refuse(strategy, refusal);
        return Some(plan);
    }
    found.plans.push(plan);
    None
}

/// The best micro-batch and chunks for a strategy of which a paper states the rest.
pub(super) fn search_within(job: &TrainingJob, strategy: &Strategy) -> Strategy {
    // Llama 3's 126 layers leave the first and the last stage one short.
    let stage = strategy.layers(job.model.layers);
    let chunks = CHUNKS
        .into_iter()
        .filter(|&chunks| chunks == 1 || strategy.pipeline > 1 && stage.is_multiple_of(chunks));
    let sizes = |chunks| {
        MICRO_BATCHES.map(|micro_batch| Strategy {
            chunks,
            micro_batch,
            ..*strategy
        })
    };
    let whole = |s: &Strategy| {
        let groups = s.chunks == 1 || s.micro_batches(job.batch).is_multiple_of(s.pipeline);
        job.batch.is_multiple_of(s.data * s.micro_batch) && groups
    };
    let all: Vec<Strategy> = chunks.flat_map(sizes).filter(whole).collect();
    // A run that was made did fit, even if its memory is not understood here.
    let fits = |s: &&Strategy| job.load(s).total() < job.cluster.device.memory;
    let fastest =
        |a: &&Strategy, b: &&Strategy| job.time(a).total().total_cmp(&job.time(b).total());
    let single = all.iter().filter(|s| s.micro_batch == 1);
    all.iter()
        .filter(fits)
        .min_by(fastest)
        .or(single.min_by(fastest))
        .copied()
        .unwrap_or(*strategy)
}

fn divisors(n: usize) -> Vec<usize> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::model;
    use crate::strategy::{Cluster, Device};

    fn job(name: &str, devices: usize) -> TrainingJob {
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        TrainingJob::new(model(name).unwrap(), cluster, devices)
    }

    #[test]
    fn every_plan_is_valid_and_the_fastest_is_first() {
        let job = job("llama-3-70b", 512);
        let found = search(&job);
        assert!(found.plans.is_sorted_by_key(|plan| plan.time.total()));
        for plan in &found.plans {
            assert_eq!(refusals(&job, &plan.strategy), [], "{}", plan.strategy);
            assert!(
                too_large(&job, &plan.load).is_none() && plan.strategy.offload == Offloaded::None
            );
        }
        let refused: usize = found.refused.values().map(|(count, ..)| count).sum();
        assert_eq!(found.plans.len() + refused, found.considered);
        assert!(
            found.refused.contains_key(&RefusalKind::Memory)
                && found.refused.contains_key(&RefusalKind::Heads)
        );
        // No replica holds 70 billion parameters whole. Every pair of degrees has a plan or one that is too large, not both.
        let least = found
            .unfit
            .iter()
            .find(|plan| plan.strategy.pipeline == 2)
            .map(|plan| plan.strategy.data);
        assert_eq!(least, Some(256), "{:?}", found.unfit);
        for Plan { strategy, load, .. } in &found.unfit {
            let same = |s: &Strategy| {
                (s.data, s.tensor, s.pipeline)
                    == (strategy.data, strategy.tensor, strategy.pipeline)
            };
            assert!(
                too_large(&job, load).is_some() && found.best(same).is_none(),
                "{strategy}"
            );
        }
        assert!(
            found
                .best(|s| s.tensor * s.pipeline == 1 && s.zero < 2)
                .is_none()
        );
    }

    #[test]
    fn a_large_job_is_searched_whole() {
        let found = search(&job("megatron-1t", 16_384));
        assert!(
            found.considered > 3_000 && !found.plans.is_empty(),
            "{}",
            found.considered
        );
        assert!(
            found.plans[0].strategy.pipeline > 1,
            "{}",
            found.plans[0].strategy
        );
    }

    #[test]
    fn what_fits_nowhere_is_offloaded() {
        let found = search(&job("llama-3-8b", 1));
        assert!(
            !found.plans.is_empty()
                && found
                    .plans
                    .iter()
                    .all(|plan| plan.strategy.offload > Offloaded::None)
        );
        assert!(search(&job("llama-3-70b", 1)).plans.is_empty());
        assert!(search(&job("llama-3-70b", 1)).smallest().is_some());
    }
}
