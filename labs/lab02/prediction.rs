//! What a reader predicts before the run.

use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::Question;
use kit::show::{bytes_decimal, thousands};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};

/// How much a rank sends per step.
///
/// # Errors
/// If the library refuses to compute it.
pub fn prediction() -> Result<Question> {
    let ranks = 2;
    let numbers = Args::parse_from(["lab02"]).train.resolve(ranks, "lab02")?.parameters();
    let bytes_each = size_of::<f32>();
    let sent = |collective, len: usize| -> Result<f64> {
        let task = Task::new(collective, Algorithm::Ring, ranks, len, bytes_each, 0)?;
        let sends = task.rounds(0).filter_map(|round| round.send);
        Ok((sends.map(|send| send.range.len()).sum::<usize>() * bytes_each) as f64)
    };
    let all_reduce = sent(Collective::AllReduce, numbers)?;
    let mb = 1e6;
    Ok(Question::amount(
        ["lab02", "The run"],
        format!(
            "{ranks} ranks train a model of {} parameters in f32. After each backward pass they average their gradients, by a ring \
             all-reduce. How many MB does each rank send per step?",
            thousands(numbers as u64)
        ),
        |size| bytes_decimal(size * mb),
        all_reduce / mb,
        &[
            (
                numbers as f64 / mb,
                "That is the number of gradients, in millions. Each of them has 4 bytes.",
            ),
            (
                sent(Collective::ReduceScatter, numbers / ranks)? / mb,
                "That is half of the way: each rank then has half of the sums, and sends them to the other as well.",
            ),
            (
                2.0 * all_reduce / mb,
                "That is all gradients twice. Each rank sends half of them to be added up, and then its half of the sums.",
            ),
        ],
        format!(
            "2(n-1)/n of the gradients' {}: once all of them for two ranks, and at most twice for any number.",
            bytes_decimal((numbers * bytes_each) as f64)
        ),
    )
    .typed(" MB", 0.02)
    .shown(format!("{} bytes per rank per step", thousands(all_reduce as u64))))
}
