//! Labs 08 to 12: a job that goes on, generation, the choice of a strategy, and long sequences.

use super::Question;
use anyhow::{Context, Result, bail, ensure};
use kit::show::{bytes_decimal, seconds, thousands};
use lab08::skipping::{LossScaler, ScalerRule};
use planner::{Cluster, Device, Strategy, TrainingJob};
use planner::{fits, model};
use shardlab::parallel::context::Slicing;
use shardlab::parallel::partition::{Flat, FlatGroup};
use std::ops::Range;

pub fn first_line_of_a_log() -> Result<Question> {
    let gradient = 1e-3;
    // Of fp16.
    let largest = 65_504.0;
    let config = ScalerRule::Megatron.defaults();
    let mut scaler = LossScaler::new(config);
    let mut refused = 0;
    while gradient * scaler.scale() > largest {
        scaler.update(true)?;
        refused += 1;
    }
    ensure!(refused > 1, "the first iterations are refused");
    let log2 = |scale: f64| scale.log2().round();
    let first = format!(
        "Its first gradients are about {gradient}. Times 2^{} that is {}, and fp16 ends at {}.",
        log2(config.initial),
        thousands((gradient * config.initial) as u64),
        thousands(largest as u64)
    );
    Ok(Question::words(
        ["lab08", "The picture"],
        format!(
            "A job begins to train in fp16 under Megatron-LM. Its log says: iteration 1, learning rate 0, loss scale {}, number of skipped \
             iterations 1. What is wrong with it?",
            thousands(config.initial as u64)
        ),
        "nothing",
        &[
            (
                "the schedule: a learning rate of 0 trains nothing".into(),
                "The schedule has not moved, because no step was taken. It moves with the first step that is.",
            ),
            (
                "the first batch: it should be skipped for good".into(),
                "The gradients overflow by their scale, whatever the batch. Its next step draws other data and is refused as well.",
            ),
            (
                "the gradients: they explode, so the learning rate is too high".into(),
                &first,
            ),
        ],
        format!(
            "The loss scale is being searched for, from 2^{} down. With gradients of {gradient} the first {refused} iterations are refused, \
             until 2^{} fits. A scale that still falls after hundreds of iterations would be an alarm.",
            log2(config.initial),
            log2(scaler.scale())
        ),
    )
    .on_page("loss-scale"))
}

pub fn whose_slices() -> Result<Question> {
    let numbers = 1200;
    let (before, now) = (4, 3);
    let asked = 1;
    let flat = |ranks| Flat { numel: numbers, ranks };
    let saved = FlatGroup { start: 0, flat: flat(before), expert: false };
    let named = |mut ranks: Vec<usize>| {
        let last = ranks.pop().map_or(String::new(), |rank| rank.to_string());
        let others: Vec<String> = ranks.iter().map(usize::to_string).collect();
        match others.len() {
            0 => format!("rank {last}"),
            _ => format!("ranks {} and {last}", others.join(", ")),
        }
    };
    let span = |held: Range<usize>| format!("numbers {} to {}", held.start, held.end - 1);
    let had = saved.owners(flat(now).range(asked));
    let had: Vec<String> = had
        .map(|(owner, _)| format!("old rank {owner} had {}", span(saved.range(owner))))
        .collect();
    let owners = |rank| saved.owners(flat(now).range(rank)).map(|(owner, _)| owner).collect();
    Ok(Question::words(
        ["lab09", "The idea"],
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
            (named(owners(asked - 1)), "Those are the slices that rank 0 needs."),
            (
                named((0..before).collect()),
                "That works, and reads all of the state on each rank. Most of it is not needed.",
            ),
        ],
        format!("Rank {asked} has {} now; {}.", span(flat(now).range(asked)), had.join(" and ")),
    ))
}

pub fn cache() -> Result<Question> {
    let tokens = 8192.0;
    let bytes = 2.0;
    let shape = model("llama-3-8b")?;
    let of = |numbers: f64| numbers * tokens * bytes;
    let cached = shape.cached(1) as f64;
    Ok(Question::amount(
        ["lab10", "Prefill and decode"],
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
    )
    .on_page("generation"))
}

/// What may run where someone has set 8 tensor ranks, in words, and why its memory would be
/// another.
const RUNNING: [(&str, &str, &str); 4] = [
    ("dp=8,mb=1", "8 replicas of the whole model: nobody has read the setting", ""),
    (
        "tp=8,mb=1",
        "8 tensor ranks, without sequence parallelism",
        "Norms and dropout are whole then, and they hold next to no parameters. Everything else is divided by 8",
    ),
    (
        "tp=4,dp=2,mb=1",
        "4 tensor ranks, and 2 replicas",
        "Then each rank holds a quarter",
    ),
    ("dp=8,zero=1,mb=1", "8 replicas under ZeRO-1", "Then the optimizer is divided"),
];

pub fn equal_losses() -> Result<Question> {
    let ranks = 8;
    let device = Device::named("a100-80g").context("lab11 has this device")?;
    let cluster = Cluster::new(device, "dgx-a100").context("lab11 has this network")?;
    let job = |devices| -> Result<TrainingJob> {
        Ok(TrainingJob::new(model("gpt2-xl")?, cluster.clone(), devices))
    };
    let state = |devices, strategy: &str| -> Result<f64> {
        let strategy: Strategy = strategy.parse()?;
        Ok(job(devices)?.load(&strategy).state())
    };
    let one = state(1, "mb=1")?;
    let mut rights = Vec::new();
    let mut wrong = Vec::new();
    for (strategy, words, but) in RUNNING {
        let held = state(ranks, strategy)?;
        if held == one {
            rights.push(words);
        } else {
            wrong.push((words.to_string(), format!("{but}: {}.", bytes_decimal(held))));
        }
    }
    let [right] = rights[..] else {
        bail!("{} of these hold what one rank holds", rights.len());
    };
    let wrong: Vec<(String, &str)> =
        wrong.iter().map(|(words, but)| (words.clone(), but.as_str())).collect();
    Ok(Question::words(
        ["lab10", "The settings"],
        format!(
            "A team sets {ranks} tensor ranks for GPT-2 XL. In every step the loss is that of one rank with the same sequences. But each rank \
             holds {} of parameters, gradients and optimizer, as much as one rank without others. What runs?",
            bytes_decimal(one)
        ),
        right,
        &wrong,
        format!(
            "Every strategy trains the same model, so no loss says which one runs. What a rank holds does: with {ranks} tensor ranks it would \
             be {}.",
            bytes_decimal(state(ranks, "tp=8,mb=1")?)
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
    let wrong: Vec<(String, &str)> =
        plans[1..].iter().map(|&(_, words, but)| (words.into(), but)).collect();
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

pub fn slowest_of_a_sequence() -> Result<Question> {
    let ranks = 8;
    let length = 1024;
    // Keys that a rank's positions see.
    let keys = |slicing: Slicing, rank: usize| -> usize {
        let slices = slicing.slices(length, ranks, rank);
        slices.positions(slices.rows()).map(|position| position + 1).sum()
    };
    let slowest = |slicing| -> f64 {
        let all: Vec<usize> = (0..ranks).map(|rank| keys(slicing, rank)).collect();
        let most = all.iter().max().copied().unwrap_or(0) as f64;
        most * ranks as f64 / all.iter().sum::<usize>() as f64
    };
    let contiguous = slowest(Slicing::Contiguous);
    ensure!(slowest(Slicing::ZigZag) == 1.0, "zig-zag is balanced");
    let times = |x: f64| format!("{x:.2} times");
    Ok(Question::words(
        ["lab12", "Who computes how much"],
        format!(
            "{ranks} ranks hold an eighth of every sequence each, in order, and attention is causal. How much more than the mean has the \
             rank with most work in attention?"
        ),
        times(contiguous),
        &[
            (
                times(1.0),
                "That is so in zig-zag order, where each rank has an early and a late chunk. Here the last rank's positions see most keys.",
            ),
            (
                times(ranks as f64),
                "That would be so if the last rank had all of the work. The others' positions see keys, too.",
            ),
            (
                times(1.5),
                "That is right for two ranks: (2c-1)/c. It grows with their number, towards 2.",
            ),
        ],
        "The positions of the last of c ranks see (2c-1)/2c of the keys on average, and all positions half of them.",
    ))
}
