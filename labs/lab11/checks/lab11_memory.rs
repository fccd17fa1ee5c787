//! The check of lab11-memory: the bytes of each stage, counted along the orders of 1F1B, and the
//! best way to divide layers.

use exercise::{Job, Stage, balanced};
use kit::check::{Evidence, run};
use kit::show::bytes_decimal;
use planner::model;
use shardlab::Result;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Work};
use shardlab::plan::BytesEach;
use std::process::ExitCode;

const GB: u64 = 1_000_000_000;

/// The template's picture.
const PICTURE: Job = Job {
    layers: 9,
    stages: 3,
    micro_batches: 6,
    state: 4 * GB,
    kept: 2 * GB,
    table: 3 * GB,
    head: 3 * GB,
    logits: GB,
};

fn main() -> ExitCode {
    run(&[
        ("one stage: all layers on each rank", |evidence| {
            let one = Job { stages: 1, ..PICTURE };
            bytes(evidence, one)
        }),
        ("the bytes of three stages", |evidence| bytes(evidence, PICTURE)),
        ("the picture: no rank holds more than 28 GB", |evidence| {
            divided(evidence, PICTURE)
        }),
        ("24 layers on 6 stages, with 2 micro-batches", |evidence| {
            let few = Job { layers: 24, stages: 6, micro_batches: 2, ..PICTURE };
            bytes(evidence, few)?;
            divided(evidence, few)
        }),
        ("a token table of 60 GB", |evidence| {
            let large = Job { table: 60 * GB, ..PICTURE };
            bytes(evidence, large)?;
            divided(evidence, large)
        }),
        ("Llama 3 with 70 billion parameters on 8 stages", |evidence| {
            let job = published("llama-3-70b", [8, 8, 4], 1)?;
            bytes(evidence, job)?;
            divided(evidence, job)
        }),
        ("Llama 3.1 with 405 billion on 16 stages", |evidence| {
            let job = published("llama-3.1-405b", [16, 8, 128], 1)?;
            bytes(evidence, job)?;
            divided(evidence, job)
        }),
    ])
}

/// A model with so many stages, tensor and data ranks, with ZeRO-1 and 16 micro-batches.
fn published(name: &str, [stages, tensor, data]: [usize; 3], sequences: usize) -> Result<Job> {
    let shape = model(name)?;
    let each = BytesEach::MEGATRON.on_a_rank(data) / tensor as f64;
    let tokens = (sequences * shape.block) as u64;
    // The bytes of "One plan, by hand": norms' and matrices' inputs, q and the result of attention,
    // keys and values, the MLP's.
    let [h, keys, ffn] = [shape.embd, shape.kv_width() as usize, shape.ffn() as usize];
    let numbers = (8 * h + 2 * (2 * h + 2 * keys + 3 * ffn)) as u64;
    Ok(Job {
        layers: shape.layers,
        stages,
        micro_batches: 16,
        state: (shape.layer_parameters(0) as f64 * each) as u64,
        kept: tokens * numbers / tensor as u64,
        table: (shape.table() as f64 * each) as u64,
        head: (shape.table() as f64 * each) as u64,
        logits: 4 * tokens * shape.vocabulary as u64 / tensor as u64,
    })
}

/// The most micro-batches that each stage keeps, found by going through its order.
fn in_flight(job: &Job) -> Vec<u64> {
    let pipeline = Pipeline {
        ranks: job.stages,
        chunks: 1,
        micro_batches: job.micro_batches,
    };
    let of = |stage| {
        let mut now: u64 = 0;
        let mut most = 0;
        for pass in Schedule::OneForwardOneBackward.order(&pipeline, stage) {
            match pass.work {
                Work::Forward => now += 1,
                Work::Backward => now -= 1,
                Work::Weights => {}
            }
            most = most.max(now);
        }
        most
    };
    (0..job.stages).map(of).collect()
}

/// A way to count, right or wrong.
#[derive(Clone, Copy)]
struct Rule {
    /// Micro-batches in flight on a stage: those of the order, and the stage.
    flight: fn(&Job, u64, usize) -> u64,
    table: fn(&Job, usize) -> u64,
    head: fn(&Job, usize) -> u64,
    /// How often the last stage keeps logits.
    logits: fn(&Job, usize) -> u64,
}

const RIGHT: Rule = Rule {
    flight: |_, flight, _| flight,
    table: |_, stage| u64::from(stage == 0),
    head: |job, stage| u64::from(stage + 1 == job.stages),
    logits: |job, stage| u64::from(stage + 1 == job.stages),
};

impl Rule {
    fn layer(&self, job: &Job, flight: u64, stage: usize) -> u64 {
        job.state + (self.flight)(job, flight, stage) * job.kept
    }

    fn ends(&self, job: &Job, stage: usize) -> u64 {
        (self.table)(job, stage) * job.table
            + (self.head)(job, stage) * job.head
            + (self.logits)(job, stage) * job.logits
    }

    /// The bytes of stages with so many layers.
    fn bytes(&self, job: &Job, layers: &[usize]) -> Vec<u64> {
        let flights = in_flight(job);
        let of = |(stage, &layers): (usize, &usize)| {
            layers as u64 * self.layer(job, flights[stage], stage) + self.ends(job, stage)
        };
        layers.iter().enumerate().map(of).collect()
    }

    /// The least that the fullest rank can hold: the smallest bound within which the stages have
    /// room for all layers.
    fn least(&self, job: &Job) -> u64 {
        let flights = in_flight(job);
        let room = |bound: u64| -> Option<u64> {
            let of = |stage: usize| {
                let rest = bound.checked_sub(self.ends(job, stage))?;
                Some(rest / self.layer(job, flights[stage], stage)).filter(|&layers| layers > 0)
            };
            (0..job.stages).map(of).sum()
        };
        let fits = |bound| room(bound).is_some_and(|layers| layers >= job.layers as u64);
        let [mut low, mut high] = [0, 1];
        while !fits(high) {
            high *= 2;
        }
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if fits(middle) {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }
}

/// The layers of stages if each layer goes to the one that is the emptiest without it.
fn emptiest_first(job: &Job) -> Vec<usize> {
    let mut layers = vec![1; job.stages];
    for _ in job.stages..job.layers {
        let held = RIGHT.bytes(job, &layers);
        if let Some(stage) = (0..job.stages).min_by_key(|&stage| held[stage]) {
            layers[stage] += 1;
        }
    }
    layers
}

/// Calls the reader's function, and compares what must be true however layers are divided. Returns
/// nothing if it is not.
fn called(evidence: &mut Evidence, job: &Job) -> Option<Vec<Stage>> {
    evidence.given(format!("{job:?}"));
    let found = balanced(job);
    let all: usize = found.iter().map(|stage| stage.layers).sum();
    let stages = evidence.same("stages", job.stages, found.len());
    let layers = evidence.same("layers of all stages together", job.layers, all);
    let empty = found.iter().filter(|stage| stage.layers == 0).count();
    let none = evidence.same("stages without a layer", 0, empty);
    evidence.means_if(!stages, "The answer has one entry per stage, from first to last.");
    evidence.means_if(
        !layers && all < job.layers,
        "Layers are missing: the model that these stages train has fewer of them. A division has a remainder, and \
         somebody has to take it.",
    );
    evidence.means_if(!layers, "There are more layers than the model has.");
    evidence.means_if(
        !none,
        "A stage without a layer computes next to nothing, and its ranks wait for the others in every step. Each stage has at least one, \
         however full its end of the model makes it.",
    );
    (stages && layers && none).then_some(found)
}

/// Compares the bytes of each stage with what its own layers take.
fn bytes(evidence: &mut Evidence, job: Job) -> Result<()> {
    let Some(found) = called(evidence, &job) else {
        return Ok(());
    };
    let layers: Vec<usize> = found.iter().map(|stage| stage.layers).collect();
    let got: Vec<u64> = found.iter().map(|stage| stage.bytes).collect();
    let expected = RIGHT.bytes(&job, &layers);
    for (stage, (&expected, &got)) in expected.iter().zip(&got).enumerate() {
        evidence.row(
            expected == got,
            format!("stage {stage}: bytes of {} layers", layers[stage]),
            bytes_decimal(expected as f64),
            bytes_decimal(got as f64),
        );
    }
    if expected == got {
        return Ok(());
    }
    let counted = |rule: Rule| rule.bytes(&job, &layers) == got;
    evidence.means_if(
        counted(Rule { flight: |_, _, _| 1, ..RIGHT }),
        "One micro-batch is counted. When a stage begins its first backward pass, how many forward passes has it run? A plan that counts one \
         runs out of memory in its first step, on the first stage.",
    );
    evidence.means_if(
        counted(Rule { flight: |job, _, _| job.micro_batches as u64, ..RIGHT }),
        "All micro-batches are counted: this is GPipe. Under 1F1B a stage goes back as soon as the first gradient \
         arrives.",
    );
    evidence.means_if(
        counted(Rule { flight: |job, _, _| job.stages as u64, ..RIGHT })
            || counted(Rule { flight: |job, _, _| job.stages.min(job.micro_batches) as u64, ..RIGHT }),
        "Every stage keeps what the first one keeps. A gradient comes back to a later stage sooner: the last one keeps \
         one micro-batch.",
    );
    evidence.means_if(
        counted(Rule { flight: |job, _, stage| (job.stages - stage) as u64, ..RIGHT }),
        "More micro-batches are in flight than the step has.",
    );
    evidence.means_if(
        counted(Rule { flight: |job, _, stage| ((stage + 1).min(job.micro_batches)) as u64, ..RIGHT }),
        "The last stage keeps most here. It is the other way around: the last stage can go back at once, the first one \
         waits for all others.",
    );
    evidence.means_if(
        counted(Rule { flight: |job, _, stage| (job.stages - stage - 1).min(job.micro_batches) as u64, ..RIGHT }),
        "One micro-batch too few. These are the warm-up's forward passes, and 1F1B begins with another one before it \
         goes back.",
    );
    evidence.means_if(
        counted(Rule { table: |_, _| 0, ..RIGHT }),
        "The token table is missing on the first stage.",
    );
    evidence.means_if(
        counted(Rule { head: |_, _| 0, ..RIGHT })
            || counted(Rule { logits: |_, _| 0, ..RIGHT })
            || counted(Rule { head: |_, _| 0, logits: |_, _| 0, ..RIGHT }),
        "The last stage also has the head's state, and the logits of a micro-batch.",
    );
    evidence.means_if(
        counted(Rule { table: |_, _| 1, head: |_, _| 1, logits: |_, _| 1, ..RIGHT })
            || counted(Rule { logits: |_, _| 1, ..RIGHT }),
        "Only the first stage has the table, and only the last one the head and logits.",
    );
    evidence.means_if(
        counted(Rule { logits: |job, stage| if stage + 1 == job.stages { job.micro_batches as u64 } else { 0 }, ..RIGHT }),
        "Logits of all micro-batches are counted. The last stage goes back right after each forward pass, so it has \
         those of one.",
    );
    evidence.means(
        "A rank holds its layers' state, their activations for all micro-batches in flight, and what its end of the \
         model has.",
    );
    Ok(())
}

/// Compares the fullest rank with the fullest of the best way to divide.
fn divided(evidence: &mut Evidence, job: Job) -> Result<()> {
    if !evidence.agrees() {
        return Ok(());
    }
    let Some(found) = called(evidence, &job) else {
        return Ok(());
    };
    let layers: Vec<usize> = found.iter().map(|stage| stage.layers).collect();
    let held = RIGHT.bytes(&job, &layers);
    let most = held.iter().copied().max().unwrap_or(0);
    let fullest = held.iter().position(|&bytes| bytes == most).unwrap_or(0);
    let least = RIGHT.least(&job);
    evidence.row(
        most == least,
        "the fullest rank",
        format!("at most {}", bytes_decimal(least as f64)),
        format!(
            "{} on stage {fullest}, which has {} layers",
            bytes_decimal(most as f64),
            layers[fullest]
        ),
    );
    evidence.means_if(
        layers == emptiest_first(&job),
        "Each layer goes to the stage that is the emptiest so far. A layer does not take the same on every stage: compare what the \
         stages would hold with it, not what they hold before.",
    );
    let spread = layers.iter().max().unwrap_or(&0) - layers.iter().min().unwrap_or(&0);
    evidence.means_if(
        spread <= 1,
        "The stages have equally many layers, and unequally many micro-batches in flight: the first stage is full, the last one has room. \
         The fullest rank decides whether the job runs.",
    );
    evidence.means_if(
        layers.is_sorted_by(|a, b| a >= b),
        "The first stages have most layers, and most micro-batches in flight for each of them.",
    );
    evidence.means(format!(
        "Stage {fullest} is fuller than any rank has to be: some of its layers would find room elsewhere."
    ));
    Ok(())
}
