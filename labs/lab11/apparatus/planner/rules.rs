//! The decision path of the source, with the reason for each turn.
//!
//! Source: Sam Foreman's slides for ALCF's Hands-on HPC Workshop (2024), "Deciding on a Parallelism
//! Strategy". The source says "fast" without a number. Here a network is fast if ZeRO-3 (between
//! nodes) or tensor ranks (within a node) wait for it for less than a quarter of their step.

use super::super::strategy::{Offloaded, Plan, Recompute, Stage, Strategy, Time, TrainingJob};
use super::search::Search;
use shardlab::units::{bytes_decimal, percent, seconds};

/// A question of the path, and its answer with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub question: &'static str,
    pub answer: String,
}

/// The end of the path.
#[derive(Clone, Debug)]
pub struct Decision {
    pub steps: Vec<Step>,
    /// The words of the source's rule.
    pub advice: String,
    /// The fastest plan that follows the advice, if one fits.
    pub plan: Option<Plan>,
    /// The advice as a condition on the plan: "ZeRO alone".
    asks: &'static str,
    /// Devices of a node, which tensor ranks must not leave, and whether the search's best plan
    /// does.
    node: usize,
    leaves: bool,
}

/// The part of a step from which on ranks wait too long.
const SLOW: f64 = 0.25;

/// Which strategies an advice means, and the same in words.
type Advice<'a> = (&'static str, &'a dyn Fn(&Strategy) -> bool);

/// Walks the path for a job whose strategies have been searched.
pub fn decide(job: &TrainingJob, found: &Search) -> Decision {
    let node = job.cluster.network.ranks_per_node;
    let mut steps = Vec::new();
    let (fits, takes) = fits_one(job);
    steps.push(Step { question: "does the model fit on one device?", answer: takes });
    let alone: Advice = ("copies of the whole model", &|s| s.tensor == 1 && s.pipeline == 1);
    let (advice, choices): (&str, Vec<Advice>) = if job.devices == 1 {
        let (layer_fits, takes) = layer_fits(job);
        if fits {
            ("normal use", vec![alone])
        } else {
            steps.push(Step { question: "does its largest layer fit?", answer: takes });
            if layer_fits {
                (
                    "ZeRO with offloading to the CPU",
                    vec![("offloading", &|s| s.offload > Offloaded::None && s.tiles == 1)],
                )
            } else {
                ("ZeRO with memory-centric tiling", vec![("tiles", &|s| s.tiles > 1)])
            }
        }
    } else {
        let nodes = job.devices.div_ceil(node);
        let one = nodes == 1;
        let devices = if one {
            format!("one, with {} devices", job.devices)
        } else {
            format!("{nodes}, with {node} devices each")
        };
        steps.push(Step { question: "how many nodes?", answer: devices });
        if fits {
            ("DDP, or ZeRO", vec![alone])
        } else {
            let (fast, why) = if one { fast_within(job) } else { fast_between(job) };
            let question = if one {
                "are the links within the node fast?"
            } else {
                "are the links between nodes fast?"
            };
            steps.push(Step { question, answer: why });
            const PIPELINE: Advice =
                ("a pipeline without TP", &|s| s.pipeline > 1 && s.tensor == 1);
            const ZERO: Advice =
                ("ZeRO alone", &|s| s.pipeline * s.tensor == 1 && s.zero.number() > 0);
            const NO_PIPELINE: Advice =
                ("ZeRO or TP", &|s| s.pipeline == 1 && (s.zero.number() > 0 || s.tensor > 1));
            const ONE_WAY: Advice = ("PP or TP, not both", &|s| s.pipeline == 1 || s.tensor == 1);
            const ALL: Advice = ("PP and TP, with ZeRO-1 at most", &|s| {
                s.pipeline > 1 && s.tensor > 1 && s.zero.number() <= 1
            });
            const ANY: Advice = ("any strategy", &|_| true);
            match (one, fast) {
                (true, true) => ("PP, ZeRO or TP: they should be comparable", vec![ONE_WAY]),
                (true, false) => ("PP before ZeRO and TP", vec![PIPELINE, NO_PIPELINE]),
                (false, true) => {
                    ("ZeRO; or PP + ZeRO + TP + DP, with less communication", vec![ZERO, ANY])
                }
                (false, false) => ("DP + PP + TP + ZeRO-1", vec![ALL, ANY]),
            }
        }
    };
    // "TP is almost always used within a single node."
    let near = |s: &Strategy| !job.leaves_node(s.tensor);
    let chosen = choices
        .iter()
        .find_map(|(asks, such)| Some((*asks, *found.best(|s| near(s) && such(s))?)));
    let asks = chosen.map_or(choices[0].0, |(asks, _)| asks);
    Decision {
        steps,
        advice: advice.to_string(),
        plan: chosen.map(|(_, plan)| plan),
        asks,
        node,
        leaves: found.plans.first().is_some_and(|best| job.leaves_node(best.strategy.tensor)),
    }
}

/// Whether one device can train the model on one sequence at a time, if it computes every layer
/// again.
fn fits_one(job: &TrainingJob) -> (bool, String) {
    let one = TrainingJob { devices: 1, batch: 1, ..job.clone() };
    let load = one.load(&Strategy { recompute: Recompute::Full, ..Strategy::SINGLE });
    let takes = load.total();
    let room = job.cluster.device.room();
    let answer = if takes <= room { "yes" } else { "no" };
    (
        takes <= room,
        format!("{answer}: it takes {} of {}", bytes_decimal(takes), bytes_decimal(room)),
    )
}

/// Whether one device can hold what a layer needs while it computes, if everything else is
/// offloaded.
fn layer_fits(job: &TrainingJob) -> (bool, String) {
    let one = TrainingJob { devices: 1, batch: 1, ..job.clone() };
    let all = Strategy {
        offload: Offloaded::Parameters,
        zero: Stage::Three,
        recompute: Recompute::Full,
        ..Strategy::SINGLE
    };
    let load = one.load(&all);
    let takes = load.working;
    let room = job.cluster.device.room() - load.activations;
    let answer = if takes <= room { "yes" } else { "no" };
    (
        takes <= room,
        format!(
            "{answer}: while it computes it takes {} of {}",
            bytes_decimal(takes),
            bytes_decimal(room)
        ),
    )
}

/// A fast network: the ranks of `strategy` wait for less than [`SLOW`] of a step.
fn fast(job: &TrainingJob, strategy: Strategy, of: fn(&Time) -> f64, name: &str) -> (bool, String) {
    let time = job.time(&strategy);
    let waits = of(&time);
    let all = time.total();
    let share = waits / all;
    let answer = if share < SLOW { "yes" } else { "no" };
    let answer = format!("{answer}: {name} waits {} of {}", percent(share), seconds(all));
    (share < SLOW, answer)
}

/// Whether so many tensor ranks can share a replica, and each of the others has a sequence.
fn shares(job: &TrainingJob, tensor: usize) -> bool {
    job.devices.is_multiple_of(tensor)
        && job.model.kv_heads().is_multiple_of(tensor)
        && job.batch >= job.devices / tensor
}

/// The job with the next larger batch that its data ranks divide, and words for it.
fn divided(job: &TrainingJob, data: usize) -> (TrainingJob, String) {
    let batch = job.batch.next_multiple_of(data);
    let words = if batch == job.batch {
        String::new()
    } else {
        format!("with {batch} sequences ")
    };
    let job = TrainingJob { batch, ..job.clone() };
    (job, words)
}

/// Asked of the job's own batch and devices: where there are more devices than sequences, tensor
/// ranks share one.
fn fast_between(job: &TrainingJob) -> (bool, String) {
    let near = |tensor: &usize| !job.leaves_node(*tensor) && shares(job, *tensor);
    let node = job.cluster.network.ranks_per_node;
    let Some(tensor) = (1..=node).find(near) else {
        let batch = job.batch;
        let answer = format!(
            "no: {batch} sequences are too few for ZeRO on {} devices, and what divides a sequence further (context parallelism) \
             is not known here",
            job.devices
        );
        return (false, answer);
    };
    let zero = Strategy {
        data: job.devices / tensor,
        tensor,
        zero: Stage::Three,
        sequence: tensor > 1,
        recompute: Recompute::Full,
        ..Strategy::SINGLE
    };
    let (job, words) = divided(job, zero.data);
    fast(&job, zero, |time| time.data, &format!("{words}{}", zero.words()))
}

/// As many tensor ranks as heads and devices allow, and copies of them on the rest.
fn fast_within(job: &TrainingJob) -> (bool, String) {
    let tensor = (1..=job.devices).rev().find(|&tensor| shares(job, tensor));
    let tensor = tensor.unwrap_or(1);
    let strategy = Strategy {
        data: job.devices / tensor,
        tensor,
        sequence: tensor > 1,
        recompute: Recompute::Full,
        ..Strategy::SINGLE
    };
    let (job, words) = divided(job, strategy.data);
    fast(&job, strategy, |time| time.tensor, &format!("{words}{}", strategy.words()))
}

impl Decision {
    /// The part of the advice that the search's best plan does not follow.
    pub fn forbids(&self, best: &Plan) -> String {
        let tensor = best.strategy.tensor;
        if self.leaves {
            format!("the rule keeps TP within a node of {}, and TP {tensor} leaves it", self.node)
        } else {
            format!("the rule asks for {}", self.asks)
        }
    }

    /// Why the search's best plan is faster than the rule's: the parts of a step that differ most.
    /// Empty if they agree.
    pub fn differs(&self, best: &Plan) -> Vec<(&'static str, f64)> {
        let Some(plan) = &self.plan else {
            return Vec::new();
        };
        let parts = Time::PARTS.into_iter().zip(plan.time.parts()).zip(best.time.parts());
        let mut parts: Vec<(&str, f64)> =
            parts.map(|((name, rule), search)| (name, rule - search)).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let all = plan.time.total() - best.time.total();
        parts.retain(|(_, seconds)| *seconds > 0.1 * all && all > 0.0);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::planner::{model, search};
    use crate::apparatus::strategy::{Cluster, Device};

    fn decided(name: &str, devices: usize, network: &str) -> Decision {
        let cluster = Cluster::new(Device::named("a100-80g").unwrap(), network).unwrap();
        let job = TrainingJob::new(model(name).unwrap(), cluster, devices);
        decide(&job, &search(&job))
    }

    #[test]
    fn each_end_of_the_path() {
        for (name, devices, network, advice, plan) in [
            ("gpt2", 1, "dgx-a100", "normal use", "one device"),
            ("llama-3-8b", 1, "dgx-a100", "offloading to the CPU", "offloaded"),
            ("gpt2", 8, "dgx-a100", "DDP, or ZeRO", " 8"),
            ("llama-2-13b", 8, "dgx-a100", "comparable", "ZeRO-1 4"),
            ("llama-2-13b", 8, "ethernet", "", ""),
            ("llama-3-70b", 512, "dgx-a100", "ZeRO; or", "ZeRO-"),
            ("llama-3-70b", 512, "cloud-100g", "DP + PP + TP + ZeRO-1", "PP"),
        ] {
            let decision = decided(name, devices, network);
            assert!(
                decision.advice.contains(advice),
                "{name} on {devices}, {network}: {decision:?}"
            );
            let words = decision.plan.map_or(String::new(), |plan| plan.strategy.words());
            assert!(words.contains(plan), "{name} on {devices}, {network}: {words}");
            assert!(decision.plan.is_none_or(|plan| plan.strategy.tensor <= 8));
        }
    }

    /// A device on which one block does not fit.
    #[test]
    fn a_layer_that_does_not_fit_is_tiled() {
        let mut cluster = Cluster::new(Device::named("a100-80g").unwrap(), "dgx-a100").unwrap();
        (cluster.device.memory, cluster.device.host_memory) = (16e9, 1e13);
        let job = TrainingJob {
            batch: 1,
            ..TrainingJob::new(model("mt-nlg-530b").unwrap(), cluster, 1)
        };
        let decision = decide(&job, &search(&job));
        assert!(decision.advice.contains("tiling") && decision.steps.len() == 2, "{decision:?}");
        assert!(decision.plan.is_none_or(|plan| plan.strategy.tiles > 1));
    }
}
