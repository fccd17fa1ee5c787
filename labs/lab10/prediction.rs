//! What a reader predicts before the run.

use crate::apparatus::{self, Benchmark, Candidate, Harness, Model, run_distributed_benchmark};
use crate::flags::Args;
use anyhow::{Context, Result};
use clap::Parser;
use kit::Question;
use kit::show::{bytes_decimal, significant};
use shardlab::comm::Options;

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
///
/// # Errors
/// If a strategy cannot run.
pub fn prediction() -> Result<Question> {
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
    let wrong: Vec<(String, String)> =
        by_bytes[1..].iter().map(|one| (one.1.clone(), mistake(one))).collect();
    let wrong: Vec<(String, &str)> =
        wrong.iter().map(|(name, mistake)| (name.clone(), mistake.as_str())).collect();
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
