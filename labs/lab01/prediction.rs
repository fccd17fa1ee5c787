//! What a reader predicts before the run.

use anyhow::{Context, Result};
use kit::Question;
use kit::show::{Screen, bytes_decimal};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::plan::{Network, simulate};

/// An array of the table, in bytes.
const FEW: usize = 1 << 10;
/// Larger ones.
const MORE: [(usize, &str); 3] =
    [(1 << 16, "64.0 KiB"), (1 << 20, "1.00 MiB"), (1 << 26, "64.0 MiB")];

/// Which algorithm is fastest for few bytes.
///
/// # Errors
/// If the library refuses to compute it.
pub fn prediction() -> Result<Question> {
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
        wrong.push((algorithm.name().to_string(), mistake));
    }
    let wrong: Vec<(String, &str)> =
        wrong.iter().map(|(name, mistake)| (name.clone(), mistake.as_str())).collect();
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
