//! What this lab asks before its run, and in the quiz.

use crate::apparatus::{self, Benchmark, Candidate, Harness, Model, run_distributed_benchmark};
use crate::flags::Args;
use anyhow::{Context, Result, bail};
use clap::Parser;
use kit::show::{bytes_decimal, significant, thousands};
use kit::{Ask, Question};
use shapes::llamas;
use shardlab::comm::Options;
use shardlab::plan::{BytesEach, ModelShape, Portion, zero_memory};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, cache, equal_losses];

/// What moves where, by the beginning of a strategy's name. The longest name that fits comes first.
const SENDS: [(&str, &str); 5] = [
    (
        "PP 2 x TP 2",
        "the sums of half of the layers, and the activations between two stages",
    ),
    ("PP", "the activations between neighbours"),
    ("TP", "sums of activations, several in each layer"),
    ("ZeRO-3", "parameters twice and gradients once"),
    ("DP", "all gradients, once to be added up and once as sums"),
];

/// Which strategy sends the fewest bytes.
fn prediction() -> Result<Question> {
    let ranks = 4;
    let flags = Args::parse_from(["lab10"]).library;
    let model = Model::find(&flags.model)?;
    let harness = Harness {
        options: Options::default(),
        repeats: 1,
        seed: 1337,
        limit: None,
        reads_ungathered: false,
    };
    let sent = |candidate: &Candidate| -> Result<f64> {
        let benchmark = Benchmark {
            model: model.clone(),
            seq_len: 64,
            batch_sizes: vec![flags.batch],
            dtype: flags.dtype,
            world_size: candidate.ranks,
            config: candidate.config.clone(),
        };
        Ok(run_distributed_benchmark(&harness, &benchmark)?.sent)
    };
    let (all, _) = apparatus::all(&model.shape, ranks, flags.batch);
    let mut by_bytes = Vec::new();
    for candidate in all.iter().filter(|one| one.ranks == ranks).take(5) {
        by_bytes.push((sent(candidate)?, &candidate.name));
    }
    by_bytes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let what = |name: &str| {
        let found = SENDS.iter().find(|(start, _)| name.starts_with(start));
        found.map_or("", |(_, what)| what)
    };
    let mistake = |&(bytes, name): &(f64, &String)| {
        format!("It sends {}: {}.", bytes_decimal(bytes), what(name))
    };
    let wrong: Vec<(&String, String)> =
        by_bytes[1..].iter().map(|one| (one.1, mistake(one))).collect();
    let &(best, name) = by_bytes.first().context("there are strategies")?;
    let data_parallel = by_bytes.iter().find(|(_, name)| name.starts_with("DP"));
    let times = best / data_parallel.context("data parallelism is one of them")?.0;
    Ok(Question::words(
        ["lab10", "The run"],
        format!(
            "{ranks} ranks train a small Llama on {} sequences of 64 tokens per step. DP: data parallel, TP: tensor parallel, PP: pipeline \
             ranks. With which strategy does a rank send the fewest bytes?",
            flags.batch
        ),
        name,
        &wrong,
        format!(
            "A rank sends {}: {}. Gradients are as many as parameters; these are only as wide as the model, once for each token.",
            bytes_decimal(best),
            what(name)
        ),
    )
    .shown(format!("sends {}x", significant(times, 2))))
}

/// How large the cache of a sequence is.
fn cache() -> Result<Question> {
    let tokens = 8192.0;
    let bytes = 2.0;
    let shape = llamas::named("llama-3-8b")?;
    let of = |numbers: f64| numbers * tokens * bytes;
    let cached = (2 * shape.layers * shape.kv_width()) as f64;
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

/// What may run where someone has set 8 tensor ranks: the tensor ranks, ZeRO's stage, both in
/// words, and why its memory would be another.
const RUNNING: [(usize, usize, &str, &str); 4] = [
    (1, 0, "8 replicas of the whole model: nobody has read the setting", ""),
    (
        8,
        0,
        "8 tensor ranks, without sequence parallelism",
        "Norms and dropout are whole then, and they hold next to no parameters. Everything else is divided by 8",
    ),
    (4, 0, "4 tensor ranks, and 2 replicas", "Then each rank holds a quarter"),
    (1, 1, "8 replicas under ZeRO-1", "Then the optimizer is divided"),
];

/// What runs where a setting changes neither losses nor memory.
fn equal_losses() -> Result<Question> {
    let ranks = 8;
    let shape = ModelShape::gpt2(48, 1600, 25, 50257, 1024);
    // Parameters, gradients and optimizer of a rank, in bytes.
    let state = |ranks: usize, tensor: usize, stage: usize| {
        let rows = shape.vocabulary.next_multiple_of(tensor);
        let portion = Portion { tensor, rows, ..shape.portion(&(0..shape.layers)) };
        let held = shape.parameters_on_a_rank(&portion) as u64;
        let bytes = zero_memory(stage, held, (ranks / tensor) as u64, BytesEach::MEGATRON);
        bytes.iter().sum::<u64>() as f64
    };
    let one = state(1, 1, 0);
    let mut rights = Vec::new();
    let mut wrong = Vec::new();
    for (tensor, stage, words, but) in RUNNING {
        let held = state(ranks, tensor, stage);
        if held == one {
            rights.push(words);
        } else {
            wrong.push((words, format!("{but}: {}.", bytes_decimal(held))));
        }
    }
    let [right] = rights[..] else {
        bail!("{} of these hold what one rank holds", rights.len());
    };
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
            bytes_decimal(state(ranks, ranks, 0))
        ),
    ))
}
