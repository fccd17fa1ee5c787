//! The decision path of the source, with the reason for each turn.
//!
//! Source: Sam Foreman's slides for ALCF's Hands-on HPC Workshop (2024), "Deciding on a Parallelism
//! Strategy". The source says "fast" without a number. Here a network is fast if ZeRO-3 (between
//! nodes) or tensor ranks (within a node) wait for it for less than a quarter of their step.

use crate::{Degrees, Offloaded, Plan, Recompute, Search, Stage, Strategy, Time, TrainingJob};
use shapes::units::{bytes_decimal, percent, seconds};

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
    pub advice: &'static str,
    /// The fastest plan that follows the advice, if one fits.
    pub plan: Option<Plan>,
}

/// The part of a step from which on ranks wait too long.
const SLOW: f64 = 0.25;

/// An advice in the source's words, and the strategies that it means, the best kind first.
type Advice = (&'static str, &'static [fn(&Strategy) -> bool]);

const USUAL: Advice = ("normal use", &[whole]);
const OFFLOAD: Advice = ("ZeRO with offloading to the CPU", &[|s| s.offload > Offloaded::None]);
/// The planner knows no such strategy.
const TILES: Advice = ("ZeRO with memory-centric tiling", &[]);
const COPIES: Advice = ("DDP, or ZeRO", &[whole]);
const NEAR: Advice = (
    "PP, ZeRO or TP: they should be comparable",
    &[|s| s.pipeline == 1 || s.tensor == 1],
);
const NEAR_SLOW: Advice = (
    "PP before ZeRO and TP",
    &[
        |s| s.pipeline > 1 && s.tensor == 1,
        |s| s.pipeline == 1 && (s.zero.number() > 0 || s.tensor > 1),
    ],
);
const FAR: Advice = (
    "ZeRO; or PP + ZeRO + TP + DP, with less communication",
    &[|s| whole(s) && s.zero.number() > 0, |_| true],
);
const FAR_SLOW: Advice = (
    "DP + PP + TP + ZeRO-1",
    &[|s| s.pipeline > 1 && s.tensor > 1 && s.zero.number() <= 1, |_| true],
);

fn whole(s: &Strategy) -> bool {
    s.tensor * s.pipeline == 1
}

/// Walks the path for a job whose strategies have been searched.
pub fn decide(job: &TrainingJob, found: &Search) -> Decision {
    let mut steps = Vec::new();
    let mut ask = |question, (yes, answer): (bool, String)| {
        steps.push(Step { question, answer });
        yes
    };
    let fits = ask("does the model fit on one device?", fits_one(job));
    let (advice, kinds) = if job.devices == 1 {
        if fits {
            USUAL
        } else if ask("does its largest layer fit?", layer_fits(job)) {
            OFFLOAD
        } else {
            TILES
        }
    } else {
        let one = ask("how many nodes?", nodes(job));
        if fits {
            COPIES
        } else if one {
            let fast = ask("are the links within the node fast?", fast_within(job));
            if fast { NEAR } else { NEAR_SLOW }
        } else {
            let fast = ask("are the links between nodes fast?", fast_between(job));
            if fast { FAR } else { FAR_SLOW }
        }
    };
    // "TP is almost always used within a single node."
    let near = |s: &Strategy| !job.leaves_node(s.tensor);
    let plan = kinds.iter().find_map(|such| found.best(|s| near(s) && such(s)));
    Decision { steps, advice, plan: plan.copied() }
}

/// Whether one node has all devices.
fn nodes(job: &TrainingJob) -> (bool, String) {
    let node = job.cluster.network.ranks_per_node;
    let answer = match job.devices.div_ceil(node) {
        1 => format!("one, with {} devices", job.devices),
        nodes => format!("{nodes}, with {node} devices each"),
    };
    (job.devices <= node, answer)
}

/// Whether so many bytes are at most the room for them, in words.
fn enough(takes: f64, room: f64, words: &str) -> (bool, String) {
    let answer = if takes <= room { "yes" } else { "no" };
    let takes_of_room = format!("{} of {}", bytes_decimal(takes), bytes_decimal(room));
    (takes <= room, format!("{answer}: {words} {takes_of_room}"))
}

/// Whether one device can train the model on one sequence at a time, if it computes every layer
/// again.
fn fits_one(job: &TrainingJob) -> (bool, String) {
    let one = TrainingJob { devices: 1, batch: 1, ..job.clone() };
    let load = one.load(&Strategy { recompute: Recompute::Full, ..Strategy::SINGLE });
    enough(load.total(), job.cluster.device.room(), "it takes")
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
    let room = job.cluster.device.room() - load.activations;
    enough(load.working, room, "while it computes it takes")
}

/// A fast network: where `tensor` ranks share each replica, ranks wait for less than [`SLOW`] of a
/// step.
fn fast(job: &TrainingJob, tensor: usize, zero: Stage, of: fn(&Time) -> f64) -> (bool, String) {
    let strategy = Strategy {
        data: job.devices / tensor,
        tensor,
        zero,
        sequence: tensor > 1,
        recompute: Recompute::Full,
        ..Strategy::SINGLE
    };
    // With the next larger batch that its data ranks divide.
    let batch = job.batch.next_multiple_of(strategy.data);
    let words = if batch == job.batch {
        String::new()
    } else {
        format!("with {batch} sequences ")
    };
    let job = TrainingJob { batch, ..job.clone() };
    let name = strategy.words();
    let time = job.time(&strategy);
    let waits = of(&time);
    let all = time.total();
    let share = waits / all;
    let answer = if share < SLOW { "yes" } else { "no" };
    let answer = format!("{answer}: {words}{name} waits {} of {}", percent(share), seconds(all));
    (share < SLOW, answer)
}

/// Whether so many tensor ranks can share a replica, and each of the others has a sequence.
fn shares(job: &TrainingJob, tensor: usize) -> bool {
    job.devices.is_multiple_of(tensor)
        && job.model.kv_heads().is_multiple_of(tensor)
        && job.batch >= job.devices / tensor
}

/// Asked of the job's own batch and devices: where there are more devices than sequences, tensor
/// ranks share one.
fn fast_between(job: &TrainingJob) -> (bool, String) {
    let near = |tensor: &usize| !job.leaves_node(*tensor) && shares(job, *tensor);
    let node = job.cluster.network.ranks_per_node;
    let Some(tensor) = (1..=node).find(near) else {
        let batch = job.batch;
        let answer = format!(
            "no: {batch} sequences are too few for ZeRO on {} devices; what divides sequences further, context parallelism (lab12), \
             the source's rules do not know",
            job.devices
        );
        return (false, answer);
    };
    fast(job, tensor, Stage::Three, |time| time.data)
}

/// As many tensor ranks as heads and devices allow, and copies of them on the rest.
fn fast_within(job: &TrainingJob) -> (bool, String) {
    let tensor = (1..=job.devices).rev().find(|&tensor| shares(job, tensor));
    fast(job, tensor.unwrap_or(1), Stage::Ddp, |time| time.tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, Device};
    use crate::{model, search};

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

    /// A device on which one block does not fit: no plan here divides it.
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
        assert!(decision.plan.is_none());
    }
}
