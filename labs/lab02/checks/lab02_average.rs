//! The check of lab02-average: one rank, several micro-batches, several ranks, all together, a sum
//! that fails, and the bytes sent.

use exercise::step;
use kit::check::{Evidence, is_near, run};
use kit::show::thousands;
use shardlab::comm::{CommError, Reduce};
use shardlab::{Result, launch};
use std::process::ExitCode;

/// Numbers in the gradient. 4 ranks divide them evenly.
const SIZE: usize = 1024;

/// What the last step left in each number.
const LEFT: f32 = 1e6;

fn main() -> ExitCode {
    run(&[
        ("1 rank, 1 micro-batch: its own gradients", |evidence| means(evidence, 1, 1)),
        ("1 rank, 4 micro-batches: their mean", |evidence| means(evidence, 1, 4)),
        ("4 ranks, 1 micro-batch: the mean over ranks", |evidence| means(evidence, 4, 1)),
        ("4 ranks, 4 micro-batches: the mean over both", |evidence| means(evidence, 4, 4)),
        ("3 ranks, 2 micro-batches: other numbers work, too", |evidence| {
            means(evidence, 3, 2)
        }),
        ("a sum that fails: the step fails, too", failing),
        ("4 ranks, 4 micro-batches: the bytes that a rank sends", costs),
    ])
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
    // A rank's sum over its micro-batches, and the sum over all of a step.
    let own = |rank: usize, i: usize| -> f32 {
        (0..micro_steps).map(|micro| gradient(rank, micro, i)).sum()
    };
    let whole = |i: usize| -> f32 { (0..ranks).map(|rank| own(rank, i)).sum() };
    let mean = |i: usize| whole(i) / terms as f32;
    for (rank, Done { gradients: got, .. }) in results.iter().enumerate() {
        let wrong = (0..SIZE).find(|&i| !near(mean(i), got[i]));
        let i = wrong.unwrap_or(0);
        evidence.row(wrong.is_none(), format!("rank {rank}, gradient {i}"), mean(i), got[i]);
    }

    // Whether all numbers of all ranks are `other`.
    let all = |other: &dyn Fn(usize, usize) -> f32| {
        results
            .iter()
            .enumerate()
            .all(|(rank, done)| (0..SIZE).all(|i| near(other(rank, i), done.gradients[i])))
    };
    let (n, m) = (ranks as f32, micro_steps as f32);
    evidence.means_if(
        (1..=ranks).any(|times| all(&|_, i| mean(i) + LEFT * times as f32 / terms as f32)),
        "The last step's gradients are still in it: `backward` adds to what it finds. Each step then goes on in the \
         direction of all steps before it.",
    );
    evidence.means_if(
        micro_steps > 1
            && all(&|_, i| {
                (0..ranks)
                    .map(|rank| gradient(rank, micro_steps - 1, i))
                    .sum::<f32>()
                    / terms as f32
            }),
        "Of each rank's micro-batches only the last micro-batch is left: your code clears the gradients in between, and throws \
         away what the backward passes before it have computed.",
    );
    evidence.means_if(
        micro_steps > 1 && all(&|_, i| whole(i) / n),
        format!(
            "{micro_steps} times too large: this is the sum of the micro-batches. With a sum, every number of \
             micro-steps would need its own learning rate."
        ),
    );
    evidence.means_if(
        ranks > 1 && all(&|_, i| whole(i) / m),
        format!(
            "{ranks} times too large: this is a sum over the ranks, not the mean. With a sum, each additional rank \
             makes the steps longer."
        ),
    );
    evidence.means_if(
        all(&|_, i| mean(i) / n) || all(&|_, i| mean(i) / m),
        "Too small by a whole factor: your code divides twice.",
    );
    evidence.means_if(
        ranks > 1 && (all(&|rank, i| own(rank, i) / m) || all(&|rank, i| own(rank, i) / n / m)),
        "Every rank has kept its own gradients: the ranks added up nothing (or zeros, before `backward` had added \
         anything). Each rank will train its own model, and you will never see an error.",
    );
    // After each micro-batch the ranks add up, also what they have added up before.
    let again = |i: usize| {
        (0..micro_steps).fold(0.0, |sum: f32, micro| {
            let added: f32 = (0..ranks).map(|rank| gradient(rank, micro, i)).sum();
            sum * n + added
        })
    };
    evidence.means_if(
        ranks > 1 && micro_steps > 1 && all(&|_, i| again(i) / terms as f32),
        format!(
            "What the ranks had added up is added up again after the next micro-batch, {ranks} times as large each time. So the \
             first micro-batch counts most, and the last one least."
        ),
    );
    let divisor = f64::from(whole(0)) / f64::from(results[0].gradients[0]);
    evidence.means_if(
        is_near(divisor, divisor.round()) && all(&|_, i| whole(i) / divisor as f32),
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
    evidence.means_if(
        bytes == micro_steps as u64 * target,
        format!(
            "The gradients are right, and the ranks add them up {micro_steps} times, as after each micro-batch. So every step \
             of the training sends {micro_steps} times the bytes, and waits for them. Must the ranks know each other's gradients \
             before the last micro-batch is in?"
        ),
    );
    evidence.means(
        "The gradients are right, but a rank sends more than one sum of all gradients takes. Every step of the training waits \
         for these bytes, and nothing is learned from them.",
    );
    evidence.figure("bytes per rank and step", bytes, target);
    Ok(())
}
