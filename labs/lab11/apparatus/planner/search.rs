//! All strategies that the planner knows for a job, ranked by tokens per second.

use super::super::strategy::{
    Degrees, Load, MICRO_BATCHES, Offloaded, Plan, Program, Recompute, Stage, Strategy, TrainingJob,
};
use super::accuracy::Accuracy;
use super::check::{Refusal, RefusalKind, fits, refusals, refused, too_large};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// Every strategy that fits, the one that is probably fastest first.
    pub plans: Vec<Plan>,
    /// How many strategies were refused for each reason, and one of them.
    pub refused: BTreeMap<RefusalKind, (usize, Strategy, Refusal)>,
    /// The strategy that needs least, for each (dp, tp, pp) with which none fits.
    pub unfit: Vec<Plan>,
    pub considered: usize,
}

impl Search {
    /// The best plan for each (dp, tp, pp), the fastest first.
    pub fn by_degrees(&self) -> Vec<&Plan> {
        let mut seen = Vec::new();
        let fresh = |plan: &&Plan| {
            let Strategy { data, tensor, pipeline, .. } = plan.strategy;
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
        self.unfit.iter().min_by(|a, b| a.load.total().total_cmp(&b.load.total()))
    }

    /// Counts a strategy that was refused, and keeps the words for the first of each kind.
    fn refuse(&mut self, job: &TrainingJob, strategy: Strategy, kind: RefusalKind) {
        if let Some((count, ..)) = self.refused.get_mut(&kind) {
            *count += 1;
            return;
        }
        let first = refusals(job, &strategy).into_iter().next();
        let refusal = first.or_else(|| too_large(job, &strategy, &job.load(&strategy)));
        if let Some(refusal) = refusal {
            self.refused.insert(kind, (1, strategy, refusal));
        }
    }
}

/// Places for what a device does not hold, and parts of a gathered layer: (what is offloaded, to
/// disks, tiles).
type Places = &'static [(Offloaded, bool, usize)];

/// The next places are tried if nothing fits with those before.
const PLACES: [Places; 3] = [
    &[(Offloaded::None, false, 1)],
    &[
        (Offloaded::Optimizer, false, 1),
        (Offloaded::Parameters, false, 1),
        (Offloaded::Parameters, false, 4),
        (Offloaded::Parameters, false, 16),
    ],
    &[
        (Offloaded::Optimizer, true, 1),
        (Offloaded::Parameters, true, 1),
        (Offloaded::Parameters, true, 4),
        (Offloaded::Parameters, true, 16),
    ],
];

/// Tries every strategy on all devices of the job. Offloading and tiles are tried if nothing fits
/// without them.
pub fn search(job: &TrainingJob) -> Search {
    let mut found = Search::default();
    for places in PLACES {
        found.unfit.clear();
        for tensor in divisors(job.devices) {
            for pipeline in divisors(job.devices / tensor) {
                let degrees = Strategy {
                    data: job.devices / tensor / pipeline,
                    tensor,
                    pipeline,
                    ..Strategy::SINGLE
                };
                try_degrees(job, &mut found, degrees, places);
            }
        }
        if !found.plans.is_empty() {
            break;
        }
    }
    // If two are equally fast, the one that takes less memory is first.
    let accuracy = Accuracy::known();
    let order = |a: &Plan, b: &Plan| {
        accuracy
            .likely(a)
            .total_cmp(&accuracy.likely(b))
            .then(a.load.total().total_cmp(&b.load.total()))
    };
    found.plans.sort_by(order);
    found
}

/// All strategies with the degrees of `base`.
fn try_degrees(job: &TrainingJob, found: &mut Search, base: Strategy, places: Places) {
    // Heads and layers refuse all strategies of these degrees at once.
    if let Some(kind) = refused(job, &base)
        && kind < RefusalKind::Batch
    {
        found.considered += 1;
        return found.refuse(job, base, kind);
    }
    let fit = found.plans.len();
    let mut least: Option<(Strategy, Load)> = None;
    for &(offload, nvme, tiles) in places {
        for divided in divisions(job, &base, offload) {
            for recompute in recomputations(job) {
                for sequence in [false, true] {
                    if sequence && base.tensor == 1 {
                        continue;
                    }
                    let strategy =
                        Strategy { offload, nvme, tiles, recompute, sequence, ..divided };
                    let all = variants(job, &strategy).into_iter();
                    let too_large = all.filter_map(|strategy| consider(job, found, strategy));
                    let smallest = too_large.chain(least.take()).min_by(less);
                    least = smallest;
                }
            }
        }
    }
    if found.plans.len() == fit {
        found.unfit.extend(least.map(|(strategy, _)| job.plan(strategy)));
    }
}

fn less(a: &(Strategy, Load), b: &(Strategy, Load)) -> Ordering {
    a.1.total().total_cmp(&b.1.total())
}

/// The stages of ZeRO, and groups of data ranks that divide with stage 3: one node, or a few.
fn divisions(job: &TrainingJob, base: &Strategy, offload: Offloaded) -> Vec<Strategy> {
    let zero = |stage: usize| Strategy { zero: Stage::ALL[stage], ..*base };
    if offload == Offloaded::Parameters {
        return if base.pipeline == 1 { vec![zero(3)] } else { Vec::new() };
    }
    if base.data == 1 {
        return vec![zero(0)];
    }
    if base.pipeline > 1 {
        // Stage 3 would gather all of a rank's layers again for every micro-batch. Stage 2 is tried
        // where it is in use: nobody has shown Megatron-LM's in a pipeline.
        let most = match job.program {
            Program::Pytorch => 2,
            _ => 1,
        };
        return (0..=most).map(zero).collect();
    }
    let node = (job.cluster.network.ranks_per_node / base.tensor).max(1);
    let groups = [1, 2, 4, 8, 16].into_iter().map(|nodes| nodes * node);
    let groups = groups.filter(|&shard| {
        shard > 1
            && shard < base.data
            && base.data.is_multiple_of(shard)
            && job.program != Program::Shardlab
    });
    let hybrid = groups.map(|shard| Strategy { replicas: base.data / shard, ..zero(3) });
    (0..=3).map(zero).chain(hybrid).collect()
}

fn recomputations(job: &TrainingJob) -> Vec<Recompute> {
    let mut all = vec![Recompute::None, Recompute::Full];
    if job.program.recomputes_parts() {
        all.extend([Recompute::Norms, Recompute::Mlp, Recompute::OneIn(2), Recompute::OneIn(4)]);
        if !job.flash {
            all.push(Recompute::Selective);
        }
    }
    all
}

/// A strategy with each micro-batch and each number of chunks.
fn variants(job: &TrainingJob, s: &Strategy) -> Vec<Strategy> {
    let mut all = Vec::new();
    for chunks in s.chunks_for(job.model.layers) {
        for sequences in MICRO_BATCHES {
            if sequences == 1 || sequences * s.data <= job.batch {
                all.push(Strategy { chunks, micro_batch: Some(sequences), ..*s });
            }
        }
    }
    all
}

/// Adds a strategy to the plans or to those that are refused. Returns its bytes if only its memory
/// is refused.
fn consider(job: &TrainingJob, found: &mut Search, strategy: Strategy) -> Option<(Strategy, Load)> {
    found.considered += 1;
    if let Some(kind) = refused(job, &strategy) {
        found.refuse(job, strategy, kind);
        return None;
    }
    let load = job.load(&strategy);
    if !fits(job, &load) {
        found.refuse(job, strategy, RefusalKind::Memory);
        return Some((strategy, load));
    }
    let time = job.time(&strategy);
    found.plans.push(Plan { strategy, load, time });
    None
}

fn divisors(n: usize) -> Vec<usize> {
    (1..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::planner::model;
    use crate::apparatus::strategy::{Cluster, Device};

    fn job(name: &str, devices: usize) -> TrainingJob {
        let cluster = Cluster::new(Device::named("h100-80g").unwrap(), "dgx-h100").unwrap();
        TrainingJob::new(model(name).unwrap(), cluster, devices)
    }

    #[test]
    fn every_plan_is_valid_and_the_fastest_is_first() {
        let job = job("llama-3-70b", 512);
        let found = search(&job);
        let accuracy = Accuracy::known();
        assert!(found.plans.is_sorted_by_key(|plan| accuracy.likely(plan)));
        for plan in &found.plans {
            assert_eq!(refusals(&job, &plan.strategy), [], "{}", plan.strategy);
            assert!(
                too_large(&job, &plan.strategy, &plan.load).is_none()
                    && plan.strategy.offload == Offloaded::None
            );
        }
        let refused: usize = found.refused.values().map(|(count, ..)| count).sum();
        assert_eq!(found.plans.len() + refused, found.considered);
        assert!(
            found.refused.contains_key(&RefusalKind::Memory)
                && found.refused.contains_key(&RefusalKind::Heads)
        );
        // Groups of data ranks, ZeRO alone, and pipelines with chunks are all tried.
        assert!(found.best(|s| s.zero.number() == 3 && s.replicas > 1).is_some());
        assert!(found.best(|s| s.zero.number() == 3 && s.replicas == 1).is_some());
        assert!(found.best(|s| s.pipeline > 1 && s.chunks > 1).is_some());
        // No replica holds 70 billion parameters whole. Every pair of degrees has a plan or one
        // that is too large, not both.
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
                too_large(&job, strategy, load).is_some() && found.best(same).is_none(),
                "{strategy}"
            );
        }
        assert!(found.best(|s| s.tensor * s.pipeline == 1 && s.zero.number() < 2).is_none());
    }

    #[test]
    fn a_large_job_is_searched_whole() {
        let found = search(&job("megatron-1t", 16_384));
        assert!(found.considered > 3_000 && !found.plans.is_empty(), "{}", found.considered);
        assert!(found.plans[0].strategy.pipeline > 1, "{}", found.plans[0].strategy);
    }

    #[test]
    fn what_fits_nowhere_is_offloaded() {
        let found = search(&job("llama-3-8b", 1));
        assert!(
            !found.plans.is_empty()
                && found.plans.iter().all(|plan| plan.strategy.offload > Offloaded::None)
        );
        let disks = search(&job("llama-3-70b", 1)).plans;
        assert!(!disks.is_empty() && disks.iter().all(|plan| plan.strategy.nvme));
        assert!(search(&job("llama-3.1-405b", 1)).plans.is_empty());
        assert!(search(&job("llama-3.1-405b", 1)).smallest().is_some());
    }
}
