//! Labs 08 to 11: a job that goes on, generation, and the choice of a strategy.

use super::Question;
use anyhow::{Context, Result};
use kit::show::{bytes_decimal, seconds, thousands};
use lab11::planner::{fits, model};
use lab11::strategy::{Cluster, Device, Strategy, TrainingJob};
use shardlab::parallel::partition::{Flat, FlatGroup};
use shardlab::train::{Ranges, SkipPolicy};
use std::ops::Range;

pub fn next_draw() -> Result<Question> {
    let (first, last) = (11, 20);
    let accumulation = 4;
    let ranges = Ranges::parse(&[first, last])?;
    let steps = 1..ranges.after();
    // What a step draws: its micro-batches, to train on them or to discard them.
    let draws = |step| match SkipPolicy::Count.plan(&ranges, step, accumulation) {
        plan if plan.train => accumulation,
        plan => plan.discard,
    };
    let trained = steps.clone().filter(|step| !ranges.contains(*step)).count() * accumulation;
    let one_each = SkipPolicy::OneBatch
        .plan(&ranges, first as usize, accumulation)
        .discard;
    Ok(Question::amount(
        "lab08",
        format!(
            "Each step has {accumulation} micro-batches per rank, and a run skips the data of steps {first} to {last}. How many \
             micro-batches must a rank have drawn before step {}, so that this step trains on what it would have had?",
            ranges.after()
        ),
        |count| count.to_string(),
        steps.clone().map(draws).sum::<usize>() as f64,
        &[
            (
                trained as f64,
                "Then the skipped steps have drawn nothing, and the bad data come next.",
            ),
            (
                (trained + one_each) as f64,
                "Then each skipped step has drawn one micro-batch, as a published rule did. Most of the bad data come next.",
            ),
            (
                steps.len() as f64,
                "That counts steps, and each of them has several micro-batches.",
            ),
        ],
        "A skipped step draws all its micro-batches and discards them, so each later step keeps its own.",
    )
    .typed())
}

pub fn whose_slices() -> Result<Question> {
    let numbers = 1200;
    let (before, now) = (4, 3);
    let asked = 1;
    let flat = |ranks| Flat {
        numel: numbers,
        ranks,
    };
    let saved = FlatGroup {
        start: 0,
        flat: flat(before),
    };
    let named = |mut ranks: Vec<usize>| {
        let last = ranks.pop().map_or(String::new(), |rank| rank.to_string());
        let others: Vec<String> = ranks.iter().map(usize::to_string).collect();
        match others.len() {
            0 => format!("rank {last} alone"),
            _ => format!("ranks {} and {last}", others.join(", ")),
        }
    };
    let span = |held: Range<usize>| format!("numbers {} to {}", held.start, held.end - 1);
    let had = saved.owners(flat(now).range(asked));
    let had: Vec<String> = had
        .map(|(owner, _)| format!("old rank {owner} had {}", span(saved.range(owner))))
        .collect();
    let owners = |rank| {
        saved
            .owners(flat(now).range(rank))
            .map(|(owner, _)| owner)
            .collect()
    };
    Ok(Question::words(
        "lab09",
        format!(
            "{before} ranks have saved the optimizer's state of {} parameters in equal slices. Today there are {now} ranks, with \
             equal slices again. Whose old slices does rank {asked} need?",
            thousands(numbers as u64)
        ),
        named(owners(asked)),
        &[
            (
                named(vec![asked]),
                "Its number is the same, and its slice is not: it is longer, and begins later.",
            ),
            (
                named(owners(asked - 1)),
                "Those are the slices that rank 0 needs.",
            ),
            (
                named((0..before).collect()),
                "That works, and reads all of the state on each rank. Most of it is not needed.",
            ),
        ],
        format!(
            "Rank {asked} has {} now; {}.",
            span(flat(now).range(asked)),
            had.join(" and ")
        ),
    ))
}

pub fn cache() -> Result<Question> {
    let tokens = 8192.0;
    let bytes = 2.0;
    let shape = model("llama-3-8b")?;
    let of = |numbers: f64| numbers * tokens * bytes;
    let cached = shape.cached_per_token() as f64;
    Ok(Question::amount(
        "lab10",
        format!(
            "Llama 3 8B has {} layers, {} heads of {} and {} key and value heads. It generates in 16 bits. How large is the cache of a \
             sequence of {} tokens?",
            shape.layers,
            shape.heads,
            shape.head(),
            shape.kv_heads(),
            thousands(tokens as u64)
        ),
        bytes_decimal,
        of(cached),
        &[
            (
                of(cached * shape.heads as f64 / shape.kv_heads() as f64),
                "That would be a key and a value for every head. Here several heads share one of each.",
            ),
            (of(cached / 2.0), "That is one of the two: keys or values."),
            (
                of(cached / shape.layers as f64),
                "That is one layer's cache, and each layer has its own.",
            ),
        ],
        format!(
            "A key and a value for each key and value head: 2 x {} x {} numbers in each of {} layers, for each token.",
            shape.kv_heads(),
            shape.head(),
            shape.layers
        ),
    ))
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

pub fn fastest_plan() -> Result<Question> {
    let nodes = 8;
    let batch = 256;
    let device = Device::named("a100-80g").context("lab11 has this device")?;
    let cluster = Cluster::new(device, "cloud-100g").context("lab11 has this network")?;
    let network = cluster.network.clone();
    let job = TrainingJob {
        batch,
        ..TrainingJob::new(
            model("llama-2-70b")?,
            cluster,
            nodes * network.ranks_per_node,
        )
    };
    let mut plans = Vec::new();
    for (strategy, words, but) in PLANS {
        let strategy: Strategy = strategy.parse()?;
        let fits = fits(&job, &job.load(&strategy));
        anyhow::ensure!(fits, "{strategy} does not fit");
        plans.push((job.time(&strategy).total(), words, but));
    }
    plans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (best, right, why) = plans[0];
    let wrong: Vec<(String, &str)> = plans[1..]
        .iter()
        .map(|&(_, words, but)| (words.into(), but))
        .collect();
    Ok(Question::words(
        "lab11",
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
