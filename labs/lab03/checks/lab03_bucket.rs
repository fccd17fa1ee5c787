//! The check of lab03-bucket: four quiet clusters with different best sizes, and three of them with
//! disturbed steps.

use exercise::best_bucket;
use kit::check::{Evidence, run};
use kit::show::{seconds, thousands};
use shardlab::Result;
use shardlab::comm::{CallKind, Link};
use shardlab::tensor::random::Stream;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// A model on ranks with a network.
struct Cluster {
    name: &'static str,
    ranks: usize,
    link: Link,
    parameters: usize,
    /// Bytes per gradient.
    gradient: usize,
    /// Seconds of the backward pass. The forward pass takes half as long.
    backward: f64,
    /// The largest bucket that the network carries by a quicker protocol, and the latency of that
    /// protocol.
    quick: Option<(usize, f64)>,
}

const ETHERNET: Cluster = Cluster {
    name: "4 ranks on 1 GB/s",
    ranks: 4,
    link: Link { latency: 100e-6, bandwidth: 1e9 },
    parameters: 25_000_000,
    gradient: 4,
    backward: 0.25,
    quick: None,
};

const SLOW: Cluster = Cluster {
    name: "16 ranks on 1 Gbit/s",
    ranks: 16,
    link: Link { latency: 1e-3, bandwidth: 1.25e8 },
    parameters: 25_000_000,
    gradient: 4,
    backward: 0.25,
    quick: None,
};

const GPUS: Cluster = Cluster {
    name: "8 ranks on 100 GB/s",
    ranks: 8,
    link: Link { latency: 10e-6, bandwidth: 1e11 },
    parameters: 1_300_000_000,
    gradient: 2,
    backward: 0.5,
    quick: None,
};

/// Small messages have a protocol of their own, as in NCCL. The curve falls, rises, and falls
/// again.
const TWO_PROTOCOLS: Cluster = Cluster {
    name: "8 ranks on 5 GB/s, and a quick protocol for small messages",
    ranks: 8,
    link: Link { latency: 300e-6, bandwidth: 5e9 },
    parameters: 40_000_000,
    gradient: 4,
    backward: 0.1,
    quick: Some((1_000_000, 10e-6)),
};

fn main() -> ExitCode {
    run(&[
        ("4 ranks on 1 GB/s: the best size", |evidence| size(evidence, &ETHERNET, None)),
        ("16 ranks on 1 Gbit/s: the best is elsewhere", |evidence| {
            size(evidence, &SLOW, None)
        }),
        ("8 ranks on 100 GB/s: a large model", |evidence| size(evidence, &GPUS, None)),
        ("8 ranks on 5 GB/s: the best again", |evidence| {
            size(evidence, &TWO_PROTOCOLS, None)
        }),
        ("clusters on which other programs delay steps", |evidence| {
            for seed in 0..32 {
                for cluster in [&ETHERNET, &SLOW, &GPUS] {
                    size(evidence, cluster, Some(seed))?;
                }
            }
            Ok(())
        }),
    ])
}

impl Cluster {
    fn buckets(&self, size: usize) -> usize {
        self.parameters.div_ceil(size)
    }

    fn all_reduce(&self, elements: usize) -> f64 {
        let mut link = self.link;
        if let Some((_, latency)) = self.quick.filter(|&(largest, _)| elements <= largest) {
            link.latency = latency;
        }
        link.collective_seconds(CallKind::AllReduce, self.ranks, self.gradient * elements)
    }

    /// The seconds after the backward pass in which the ranks wait, with buckets of `size`
    /// parameters.
    fn exposed(&self, size: usize) -> f64 {
        let full = self.buckets(size) - 1;
        let ready = self.backward * size as f64 / self.parameters as f64;
        let each = self.all_reduce(size);
        // Equal buckets either never wait for the link, or all but the first do.
        let link_free = if full == 0 {
            0.0
        } else {
            ready + (full - 1) as f64 * each.max(ready) + each
        };
        link_free.max(self.backward) + self.all_reduce(self.parameters - full * size)
            - self.backward
    }

    fn step(&self, size: usize) -> f64 {
        1.5 * self.backward + self.exposed(size)
    }

    /// The best size of many, each 5% smaller than the one before it.
    fn best(&self) -> usize {
        let sizes = std::iter::successors(Some(self.parameters), |size| {
            Some(size * 19 / 20).filter(|&size| size > 100)
        });
        sizes
            .min_by(|&a, &b| self.step(a).total_cmp(&self.step(b)))
            .unwrap_or(self.parameters)
    }
}

/// The reader's size against the best one. `seed`: of the delays, on a busy cluster.
fn size(evidence: &mut Evidence, cluster: &Cluster, seed: Option<u64>) -> Result<()> {
    let Cluster { name, parameters, .. } = *cluster;
    let delays = Stream::new(seed.unwrap_or(0), "delays");
    let mut measured = BTreeMap::<usize, Vec<f64>>::new();
    let mut calls = 0;
    evidence.given(format!("{} parameters, {name}", thousands(parameters as u64)));
    let mut of_nothing = false;
    let answer = best_bucket(parameters, &mut |size| {
        of_nothing |= size == 0;
        let size = size.clamp(1, parameters);
        calls += 1;
        // One step in five is delayed, by up to the step's own time.
        let delay = if seed.is_some() && delays.below(5, calls) == 0 {
            delays.uniform(1000 + calls)
        } else {
            0.0
        };
        let seconds = cluster.step(size) * (1.0 + delay);
        measured.entry(size).or_default().push(seconds);
        seconds
    });
    of_nothing |= answer == 0;
    if of_nothing {
        evidence.row(false, name, "buckets of at least 1 parameter", "size 0");
        evidence.means(
            "A bucket of 0 parameters: with such buckets a step would never get through the model. The smallest bucket has one \
             parameter.",
        );
        return Ok(());
    }
    let answer = answer.min(parameters);
    let best = cluster.best();
    let least = cluster.step(best);
    let got = cluster.step(answer);
    let holds = evidence.row(
        got <= 1.03 * least,
        name,
        format!("at most {} per step", seconds(1.03 * least)),
        format!("{}, size {}", seconds(got), thousands(answer as u64)),
    );
    if holds {
        return Ok(());
    }

    let sizes = || measured.keys().copied();
    let smallest = sizes().min().unwrap_or(0);
    let largest = sizes().max().unwrap_or(0);
    let argmin = |of: fn(&[f64]) -> f64| {
        let all = measured.iter().map(|(&size, times)| (of(times), size));
        all.min_by(|a, b| a.0.total_cmp(&b.0)).map(|best| best.1)
    };
    let fastest = argmin(|times| times.iter().copied().fold(f64::INFINITY, f64::min));
    let slowest = argmin(|times| -times[0]);
    let good = |size: usize| cluster.step(size) <= 1.03 * least;
    evidence.means_if(
        calls < 3,
        "Hardly anything was measured. A size that is right on one cluster is wrong on the next.",
    );
    evidence.means_if(
        seed.is_some() && measured.values().all(|times| times.len() == 1),
        "Each size was measured once. A delayed step then decides between two sizes. Take several steps with each size.",
    );
    let largest_of = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let mean_of = |times: &[f64]| times.iter().sum::<f64>() / times.len() as f64;
    let hidden = seed.is_some() && fastest.is_some_and(good);
    evidence.means_if(
        hidden && argmin(mean_of) == Some(answer),
        "Your measurements contain the answer, but delayed steps have hidden it: this size has the smallest mean. A mean counts \
         every delay.",
    );
    evidence.means_if(
        hidden && argmin(largest_of) == Some(answer),
        "Your measurements contain the answer, but delayed steps have hidden it: you compare each size by its slowest step, and \
         that is the one that other programs delayed most.",
    );
    evidence.means_if(
        hidden,
        "Your measurements contain the answer, but delayed steps have hidden it. Other programs only add to a step's time: which \
         of several measurements of one size is disturbed least?",
    );
    evidence.means_if(
        answer != best && slowest == Some(answer) && measured.len() > 2,
        "Of all the sizes that you measured, this is the slowest.",
    );
    let too = |words: &str, shape: &str| {
        let exposed = seconds(cluster.exposed(answer));
        format!(
            "{words}: {} buckets of {}, and {exposed} of a step are exposed. {shape}",
            cluster.buckets(answer),
            thousands(answer as u64)
        )
    };
    let ends = |end: usize| answer == end && !sizes().any(good);
    if let Some((quick, _)) = cluster.quick {
        evidence.means_if(
            smallest > quick && answer > quick && measured.len() > 2,
            "You have found the bottom of one valley, and there is a second one. Behind your smallest size the time falls again, \
             because the network carries small messages by another protocol. A search that stops where the time rises never \
             gets there.",
        );
    }
    evidence.means_if(
        answer > best && ends(smallest),
        too(
            "You measured no smaller size than this",
            "The curve still falls here: go on to smaller sizes.",
        ),
    );
    evidence.means_if(
        answer < best && ends(largest),
        too(
            "You measured no larger size than this",
            "The curve still falls here: go on to larger sizes.",
        ),
    );
    evidence.means_if(
        !sizes().any(good) && best < smallest,
        format!(
            "The best size is smaller than all that you measured, and {} was not the best of them. The last bucket has what is \
             left over, so from one size to the next the time can rise where the curve still falls. Measure some more sizes \
             before you stop.",
            thousands(smallest as u64)
        ),
    );
    evidence.means_if(
        !sizes().any(good),
        format!(
            "The best size lies between two that you measured. You tried {} from {} to {}: make the factor from one size \
             to the next smaller.",
            measured.len(),
            thousands(smallest as u64),
            thousands(largest as u64)
        ),
    );
    evidence.means_if(
        answer > best,
        too("Too large", "The first bucket starts late, and the last one is complete when nothing is left to hide it."),
    );
    evidence.means(too(
        "Too small",
        "Each bucket pays 2(n-1) latencies, and together they take longer than the backward pass.",
    ));
    Ok(())
}
