//! The check of lab02-average: one rank, several micro-batches, several ranks, all together, a sum
//! that fails, and the bytes sent.

use exercise::step;
use kit::check::{Evidence, is_near, run_knowing};
use kit::show::thousands;
use shardlab::comm::{CommError, Reduce};
use shardlab::{Result, launch};
use std::process::ExitCode;

/// Numbers in the gradient. 4 ranks divide them evenly.
const SIZE: usize = 1024;

/// What the last step left in each number.
const LEFT: f32 = 1e6;

fn main() -> ExitCode {
    run_knowing(
        include_str!("lab02_average.mistakes.toml"),
        &[
            ("1 rank, 1 micro-batch: its own gradients", |evidence| means(evidence, 1, 1)),
            ("1 rank, 4 micro-batches: their mean", |evidence| means(evidence, 1, 4)),
            ("4 ranks, 1 micro-batch: the mean over ranks", |evidence| means(evidence, 4, 1)),
            ("4 ranks, 4 micro-batches: the mean over both", |evidence| means(evidence, 4, 4)),
            ("3 ranks, 2 micro-batches: other numbers work, too", |evidence| {
                means(evidence, 3, 2)
            }),
            ("a sum that fails: the step fails, too", failing),
            ("4 ranks, 4 micro-batches: the bytes that a rank sends", costs),
        ],
    )
}

/// Element `i` of a micro-batch's gradients. All sums of such elements are exact in f32, in any
/// order.
fn gradient(rank: usize, micro: usize, i: usize) -> f32 {
    (12 * ((1 + rank) * 10_usize.pow(micro as u32) + i % 3)) as f32
}

/// What a rank has after its step.
struct Done {
    gradients: Vec<f32>,
    /// Bytes that it has sent.
    bytes: u64,
}

fn results(ranks: usize, micro_steps: usize) -> Result<Vec<Done>> {
    launch::run(ranks, |comm| {
        let before = comm.traffic();
        let mut gradients = vec![LEFT; SIZE];
        let sum = |numbers: &mut [f32]| comm.all_reduce(numbers, Reduce::Sum);
        let backward = |micro: usize, gradients: &mut [f32]| {
            for (i, g) in gradients.iter_mut().enumerate() {
                *g += gradient(comm.rank(), micro, i);
            }
        };
        step(ranks, &sum, micro_steps, &mut gradients, &backward)?;
        Ok(Done { gradients, bytes: (comm.traffic() - before).bytes })
    })
}

fn means(evidence: &mut Evidence, ranks: usize, micro_steps: usize) -> Result<()> {
    let results = results(ranks, micro_steps)?;
    let terms = ranks * micro_steps;
    let whole = |i: usize| -> f32 {
        let of = |rank| (0..micro_steps).map(move |micro| gradient(rank, micro, i));
        (0..ranks).flat_map(of).sum()
    };
    let mean = |i: usize| whole(i) / terms as f32;
    let right: f64 = (0..SIZE).map(|i| f64::from(mean(i))).sum();
    let mut shows = Vec::new();
    for (rank, Done { gradients: got, .. }) in results.iter().enumerate() {
        let wrong = (0..SIZE).find(|&i| !near(mean(i), got[i]));
        let i = wrong.unwrap_or(0);
        evidence.row(wrong.is_none(), format!("rank {rank}, gradient {i}"), mean(i), got[i]);
        // One of its numbers and their sum, as multiples of the right ones.
        let sum: f64 = got.iter().map(|&g| f64::from(g)).sum();
        shows.extend([f64::from(got[0] / mean(0)), sum / right]);
    }
    evidence.known(&shows);
    let divisor = f64::from(whole(0)) / f64::from(results[0].gradients[0]);
    let is_divided =
        |done: &Done| (0..SIZE).all(|i| near(whole(i) / divisor as f32, done.gradients[i]));
    evidence.means_if(
        is_near(divisor, divisor.round()) && results.iter().all(is_divided),
        format!(
            "This is the sum over {terms} micro-batches, and your code divides it by {divisor:.0}: how many are there on all \
             ranks together?"
        ),
    );
    let apart = results.iter().any(|done| done.gradients != results[0].gradients);
    evidence.means_if(
        apart && micro_steps > 1,
        "The ranks hold different gradients: some were added after the ranks had added up. The models drift apart from \
         this step on, and you will never see an error.",
    );
    evidence.means_if(
        apart,
        "The ranks hold different gradients: their models drift apart from this step on.",
    );
    evidence.means_if(
        ranks == 1 && micro_steps == 1,
        "With one rank and one micro-batch there is nothing to average: the gradients are those that `backward` adds to zeros.",
    );
    evidence.means("All ranks hold the same numbers, but not the mean.");
    Ok(())
}

fn near(expected: f32, got: f32) -> bool {
    (expected - got).abs() <= 1e-6 * expected.abs()
}

fn failing(evidence: &mut Evidence) -> Result<()> {
    let sum = |_: &mut [f32]| Err(CommError::Invalid { call: None, why: "rank 1 has left".into() });
    let mut gradients = vec![0.0; 4];
    let result = step(2, &sum, 1, &mut gradients, &|_, gradients| gradients.fill(1.0));
    evidence.row(
        result.is_err(),
        "your step, when `sum` returns an error",
        "that error",
        if result.is_err() { "an error" } else { "Ok" },
    );
    evidence.means(
        "`sum` failed, because a rank has left, and your step says that all went well. So this rank trains on by itself, with \
         gradients that nobody has averaged. A `?` after a call passes its error on.",
    );
    Ok(())
}

fn costs(evidence: &mut Evidence) -> Result<()> {
    let (ranks, micro_steps) = (4, 4);
    let results = results(ranks, micro_steps)?;
    let bytes = results.iter().map(|done| done.bytes).max().unwrap_or(0);
    // An all-reduce sends 2(n-1)/n times the data from every rank.
    let target = (2 * (ranks - 1) * SIZE * size_of::<f32>() / ranks) as u64;
    evidence.row(
        bytes <= target,
        "bytes per rank and step",
        format!("at most {}", thousands(target)),
        thousands(bytes),
    );
    evidence.known(&[bytes as f64 / target as f64]);
    evidence.means(
        "The gradients are right, but a rank sends more than one sum of all gradients takes. Every step of the training waits \
         for these bytes, and nothing is learned from them.",
    );
    evidence.figure("bytes per rank and step", bytes, target);
    Ok(())
}
