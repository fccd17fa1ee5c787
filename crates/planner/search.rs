//! All strategies that the planner knows for a job, ranked by tokens per second.

use crate::check::{divisors, undivided};
use crate::{
    Accuracy, Degrees, MICRO_BATCHES, Offloaded, Plan, Program, Recompute, Stage, Strategy,
    TrainingJob, USUAL_LENGTH, fits, refusal,
};
use shapes::strategy::Exchange;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Search {
    /// Every strategy that fits, the one that is probably fastest first.
    pub plans: Vec<Plan>,
    /// Of those that do not fit, the one that needs least.
    pub least: Option<Plan>,
    pub considered: usize,
}

impl Search {
    /// The best plan for each (dp, tp, pp, cp), the fastest first.
    pub fn by_degrees(&self) -> Vec<&Plan> {
        let mut seen = Vec::new();
        let fresh = |plan: &&Plan| {
            let Strategy { data, tensor, pipeline, context, .. } = plan.strategy;
            let degrees = (data, tensor, pipeline, context);
            let new = !seen.contains(&degrees);
            seen.extend(new.then_some(degrees));
            new
        };
        self.plans.iter().filter(fresh).collect()
    }

    /// The fastest plan whose strategy is `such`.
    pub fn best(&self, such: impl Fn(&Strategy) -> bool) -> Option<&Plan> {
        self.plans.iter().find(|plan| such(&plan.strategy))
    }
}

/// Tries every strategy on all devices of the job; with offloading if nothing fits without.
pub fn search(job: &TrainingJob) -> Search {
    let mut found = Search::default();
    try_all(job, &mut found, &[Offloaded::None]);
    if found.plans.is_empty() {
        found.least = None;
        try_all(job, &mut found, &[Offloaded::Optimizer, Offloaded::Parameters]);
    }
    // If two are equally fast, the one that takes less memory is first.
    let accuracy = Accuracy::known();
    found.plans.sort_by(|a, b| {
        let by_time = accuracy.likely(a).total_cmp(&accuracy.likely(b));
        by_time.then(a.load.total().total_cmp(&b.load.total()))
    });
    found
}

fn try_all(job: &TrainingJob, found: &mut Search, offloads: &[Offloaded]) {
    for tensor in divisors(job.devices) {
        for pipeline in divisors(job.devices / tensor) {
            for context in contexts(job, job.devices / tensor / pipeline) {
                let degrees = Strategy {
                    data: job.devices / tensor / pipeline / context,
                    tensor,
                    pipeline,
                    context,
                    exchange: match context {
                        1 => Exchange::default(), // nothing is exchanged
                        _ => job.program.exchange(),
                    },
                    ..Strategy::SINGLE
                };
                // All strategies of these degrees are refused at once.
                if undivided(job, &degrees).is_some() {
                    found.considered += 1;
                    continue;
                }
                for &offload in offloads {
                    for strategy in divisions(job, &Strategy { offload, ..degrees }) {
                        try_settings(job, found, strategy);
                    }
                }
            }
        }
    }
}

/// The numbers of context ranks that are tried among `ranks` ranks with the same weights: only
/// sequences longer than in pretraining are shared.
fn contexts(job: &TrainingJob, ranks: usize) -> impl Iterator<Item = usize> {
    let most = job.model.block / USUAL_LENGTH;
    let powers = (0..usize::BITS).map(|power| 1 << power);
    powers
        .take_while(move |&c| c == 1 || c <= most)
        .filter(move |c| ranks.is_multiple_of(*c))
}

/// The stages of ZeRO, and groups of data ranks that divide with stage 3: one node, or a few.
fn divisions(job: &TrainingJob, base: &Strategy) -> Vec<Strategy> {
    let zero = |stage: usize| Strategy { zero: Stage::ALL[stage], ..*base };
    if base.offload == Offloaded::Parameters {
        return if base.pipeline == 1 { vec![zero(3)] } else { Vec::new() };
    }
    let data = base.gradient_ranks();
    if data == 1 {
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
    let groups = groups.filter(|&shard| shard > 1 && shard < data && data.is_multiple_of(shard));
    let hybrid = groups.map(|shard| Strategy { replicas: data / shard, ..zero(3) });
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

/// A strategy with everything that can be recomputed, with and without sequence parallelism, with
/// each number of chunks and each micro-batch.
fn try_settings(job: &TrainingJob, found: &mut Search, base: Strategy) {
    for recompute in recomputations(job) {
        for sequence in [false, true] {
            if sequence && base.tensor == 1 {
                continue;
            }
            for chunks in base.chunks_for(job.model.layers) {
                for sequences in MICRO_BATCHES {
                    let micro_batch = Some(sequences);
                    if sequences == 1 || sequences * base.data <= job.batch {
                        let strategy =
                            Strategy { recompute, sequence, chunks, micro_batch, ..base };
                        consider(job, found, strategy);
                    }
                }
            }
        }
    }
}

/// Adds a strategy to the plans, if it works and fits.
fn consider(job: &TrainingJob, found: &mut Search, strategy: Strategy) {
    found.considered += 1;
    if refusal(job, &strategy).is_some() {
        return;
    }
    let load = job.load(&strategy);
    if fits(job, &load) {
        let time = job.time(&strategy);
        found.plans.push(Plan { strategy, load, time });
    } else if found.least.is_none_or(|least| load.total() < least.load.total()) {
        found.least = Some(job.plan(strategy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::{Cluster, Device};

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
            assert_eq!(refusal(&job, &plan.strategy), None, "{}", plan.strategy);
            assert!(fits(&job, &plan.load) && plan.strategy.offload == Offloaded::None);
        }
        // Groups of data ranks, ZeRO alone, and pipelines with chunks are all tried.
        assert!(found.best(|s| s.zero.number() == 3 && s.replicas > 1).is_some());
        assert!(found.best(|s| s.zero.number() == 3 && s.replicas == 1).is_some());
        assert!(found.best(|s| s.pipeline > 1 && s.chunks > 1).is_some());
        // No replica holds 70 billion parameters whole.
        assert!(found.best(|s| s.tensor * s.pipeline == 1 && s.zero.number() < 2).is_none());
    }

    #[test]
    fn a_large_job_is_searched_whole() {
        let found = search(&job("megatron-1t", 16_384));
        // The shapes that Megatron-LM's paper trained it with are among them.
        assert!(found.best(|s| [s.tensor, s.pipeline] == [8, 64]).is_some());
        assert!(found.plans[0].strategy.pipeline > 1, "{}", found.plans[0].strategy);
    }

    #[test]
    fn what_fits_nowhere_is_offloaded() {
        let found = search(&job("llama-3-8b", 1));
        assert!(
            !found.plans.is_empty()
                && found.plans.iter().all(|plan| plan.strategy.offload > Offloaded::None)
        );
        let none = search(&job("llama-3.1-405b", 1));
        assert!(none.plans.is_empty() && none.least.is_some());
    }
}
