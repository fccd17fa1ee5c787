//! What this lab asks before its run, and in the quiz.

use crate::apparatus::Found;
use crate::flags::Args;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use kit::show::{bytes_decimal, seconds, thousands};
use kit::{Ask, Question};
use planner::{Cluster, Degrees, Device, Strategy, TrainingJob, fits, model, too_large};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, on_slow_links];

/// Plans that readers may choose beside the best one.
const OTHERS: [&str; 4] = [
    "dp=512,zero=3,mb=1,recompute=full",
    "dp=8,tp=4,pp=16,mb=1,zero=1,sp",
    "dp=8,tp=64,mb=1,zero=1,sp",
    "dp=512,mb=1,recompute=full",
];

/// Which plan is the fastest.
fn prediction() -> Result<Question> {
    let decide = Args::parse_from(["lab11"]).decide;
    let (_, shape, _) = decide.model.described()?;
    let found = Found::new(decide.job(shape)?);
    let job = &found.job;
    let best = found.search.plans.first().context("a plan fits")?;
    let mut wrong = Vec::new();
    for other in OTHERS {
        let strategy: Strategy = other.parse()?;
        let plan = job.plan(strategy);
        let mistake = match too_large(job, &plan.load) {
            Some(refusal) => format!("It does not fit: {}.", refusal.what),
            None => format!("It fits, and a step takes {}.", seconds(plan.time.total())),
        };
        wrong.push((strategy.words(), mistake));
    }
    let step = seconds(best.time.total());
    Ok(Question::words(
        ["lab11", "The run"],
        format!(
            "Llama 3 70B trains on {} H100 of 80 GB, eight to a node, with {} sequences of {} tokens per step. NVLink joins the GPUs of a \
             node, and each has a fast card to the others. Which plan is fastest?",
            job.devices,
            job.batch,
            thousands(job.model.block as u64)
        ),
        best.strategy.words(),
        &wrong,
        format!(
            "A step takes {step}, by the planner. Tensor ranks stay inside a node, all ranks have work all the time, and little is computed \
             twice."
        ),
    )
    .shown(step))
}

/// Strategies for eight nodes of eight GPUs, in words, and what speaks against each on slow links.
const PLANS: [(&str, &str, &str); 4] = [
    (
        "tp=8,pp=8,mb=1,sp",
        "8 tensor ranks on each node, and 8 pipeline stages",
        "Tensor ranks sum up each layer inside their node, and a message between stages is small.",
    ),
    (
        "tp=64,mb=1,sp",
        "64 tensor ranks",
        "They fit, and sum up each layer over the slow cards: all ranks wait for that, several times in each layer.",
    ),
    (
        "dp=64,zero=3,mb=1,recompute=full",
        "ZeRO-3 on 64 ranks, which compute each layer again",
        "It fits, and gathers all parameters over the slow cards for each micro-batch.",
    ),
    (
        "tp=8,dp=8,mb=1,zero=3,sp",
        "8 tensor ranks on each node, and ZeRO-3 on 8 data ranks",
        "It fits, and each data rank has many micro-batches, all of which gather the parameters over the slow cards.",
    ),
];

/// Which plan is fastest where nodes have slow cards.
fn on_slow_links() -> Result<Question> {
    let nodes = 8;
    let batch = 256;
    let device = Device::named("a100-80g").context("lab11 has this device")?;
    let cluster = Cluster::new(device, "cloud-100g").context("lab11 has this network")?;
    let network = cluster.network.clone();
    let job = TrainingJob {
        batch,
        ..TrainingJob::new(model("llama-2-70b")?, cluster, nodes * network.ranks_per_node)
    };
    let mut plans = Vec::new();
    for (strategy, words, but) in PLANS {
        let strategy: Strategy = strategy.parse()?;
        let fits = fits(&job, &job.load(&strategy));
        ensure!(fits, "{strategy} does not fit");
        plans.push((job.time(&strategy).total(), words, but));
    }
    plans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (best, right, why) = plans[0];
    let wrong: Vec<(&str, &str)> = plans[1..].iter().map(|&(_, words, but)| (words, but)).collect();
    Ok(Question::words(
        ["lab11", "How long does a step take?"],
        format!(
            "Llama 2 70B trains on {nodes} nodes of {} GPUs of 80 GB, with {batch} sequences of {} tokens per step. NVLink joins the \
             GPUs of a node. A single card of {}/s joins each node with the others. All of these plans fit. Which is fastest?",
            network.ranks_per_node,
            thousands(job.model.block as u64),
            bytes_decimal(network.between.bandwidth)
        ),
        right,
        &wrong,
        format!(
            "{why} lab11 predicts {} for a step, and {} for the second best of these.",
            seconds(best),
            seconds(plans[1].0)
        ),
    ))
}
