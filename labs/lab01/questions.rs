//! What this lab asks before its run, and in the quiz.

use anyhow::{Context, Result};
use kit::show::{Screen, bytes_decimal};
use kit::{Ask, Question};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::plan::{Network, simulate};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, bytes_of_a_ring];

/// An array of the table, in bytes.
const FEW: usize = 1 << 10;
/// Larger ones.
const MORE: [(usize, &str); 3] =
    [(1 << 16, "64.0 KiB"), (1 << 20, "1.00 MiB"), (1 << 26, "64.0 MiB")];

/// Which algorithm is fastest for few bytes.
fn prediction() -> Result<Question> {
    let ranks = 4;
    let network = Network::named("ethernet").context("a preset of this lab")?;
    let bytes_each = size_of::<f32>();
    // Algorithms with their predicted seconds, the fastest one first.
    let by_time = |bytes: usize| -> Result<Vec<(f64, Algorithm)>> {
        let mut all = Vec::new();
        for &algorithm in Collective::AllReduce.algorithms() {
            let (of, len) = (Collective::AllReduce, bytes / bytes_each);
            let task = Task::new(of, algorithm, ranks, len, bytes_each, 0)?;
            all.push((simulate(&task, bytes_each, &network), algorithm));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(all)
    };
    let few = by_time(FEW)?;
    let screen = Screen::plain();
    let mut wrong = Vec::new();
    for &(seconds, algorithm) in &few[1..] {
        let mut right_for = Vec::new();
        for (bytes, words) in MORE {
            let all = by_time(bytes)?;
            let its = all.iter().find(|(_, other)| *other == algorithm);
            if its.is_some_and(|(seconds, _)| *seconds <= 1.1 * all[0].0) {
                right_for.push(words);
            }
        }
        let right_for = match &right_for[..] {
            [] => "It is among the fastest for no size, because all ranks wait for rank 0's link."
                .to_string(),
            sizes => format!("It is among the fastest for {}.", sizes.join(" and ")),
        };
        let mistake = format!("It takes {} here. {right_for}", screen.seconds(seconds));
        wrong.push((algorithm.name(), mistake));
    }
    let (best, algorithm) = few[0];
    Ok(Question::words(
        ["lab01", "The run"],
        format!(
            "{ranks} ranks all-reduce an array of {FEW} bytes over Ethernet, where a message takes {} and {}/s on top. Which algorithm \
             is fastest?",
            screen.seconds(network.between.latency),
            bytes_decimal(network.between.bandwidth)
        ),
        algorithm.name(),
        &wrong,
        format!(
            "It takes {}. So few bytes cost next to nothing, and each round costs a latency: the fewest rounds win.",
            screen.seconds(best)
        ),
    )
    .shown(screen.seconds(best)))
}

/// Bytes that the busiest rank sends.
fn sent(collective: Collective, algorithm: Algorithm, ranks: usize, bytes: usize) -> Result<f64> {
    let whole = bytes / size_of::<f32>();
    let len = match collective {
        Collective::AllReduce => whole,
        _ => whole / ranks,
    };
    let task = Task::new(collective, algorithm, ranks, len, size_of::<f32>(), 0)?;
    let by_rank = (0..ranks).map(|rank| {
        let sends = task.rounds(rank).filter_map(|round| round.send);
        sends.map(|send| send.range.len()).sum::<usize>()
    });
    Ok((by_rank.max().unwrap_or(0) * size_of::<f32>()) as f64)
}

/// How much a rank sends in a ring.
fn bytes_of_a_ring() -> Result<Question> {
    let ranks = 8;
    let bytes = 1_000_000_000;
    let of = |collective, algorithm| sent(collective, algorithm, ranks, bytes);
    Ok(Question::amount(
        ["lab01", "The idea"],
        format!(
            "{ranks} ranks all-reduce {} of gradients in a ring. How much does each rank send?",
            bytes_decimal(bytes as f64)
        ),
        bytes_decimal,
        of(Collective::AllReduce, Algorithm::Ring)?,
        &[
            (
                of(Collective::ReduceScatter, Algorithm::Ring)?,
                "That is one half of the ring. After it each rank has one complete chunk, and the chunks must still go around.",
            ),
            (
                bytes as f64,
                "That would be every number once. A ring adds up first, and then hands the sums around.",
            ),
            (
                of(Collective::AllReduce, Algorithm::Naive)?,
                "That is what rank 0 sends if all ranks send to it, and it sends the sums back to each.",
            ),
        ],
        "Each half of the ring moves n-1 of n chunks: 2(n-1)/n of the bytes, almost the same for any number of ranks.",
    ))
}
