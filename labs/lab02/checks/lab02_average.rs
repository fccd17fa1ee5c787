//! The check of lab02-average: one rank, several micro-batches, several ranks, all together, and the bytes sent.

use exercise::step;
use kit::check::{Evidence, run};
use shardlab::{Result, launch};
use std::process::ExitCode;

/// Numbers in the gradient. 4 ranks divide them evenly.
const SIZE: usize = 1024;

fn main() -> ExitCode {
    run(&[
        ("1 rank, 1 micro-batch: its own gradients", |evidence| {
            means(evidence, 1, 1)
        }),
        ("1 rank, 4 micro-batches: their mean", |evidence| {
            means(evidence, 1, 4)
        }),
        ("4 ranks, 1 micro-batch: the mean over ranks", |evidence| {
            means(evidence, 4, 1)
        }),
        ("4 ranks, 4 micro-batches: the mean over both", |evidence| {
            means(evidence, 4, 4)
        }),
        (
            "3 ranks, 2 micro-batches: other numbers work, too",
            |evidence| means(evidence, 3, 2),
        ),
    ])
}

/// Element `i` of a micro-batch's gradients. All sums of such elements are exact in f32, in any order.
fn gradient(rank: usize, micro: usize, i: usize) -> f32 {
    (12 * ((1 + rank) * 10_usize.pow(micro as u32) + i % 3)) as f32
}

fn means(evidence: &mut Evidence, ranks: usize, micro_steps: usize) -> Result<()> {
    let results = launch::run(ranks, |comm| {
        let before = comm.traffic();
        let mut gradients = vec![-1e6; SIZE];
        let backward = |micro: usize, gradients: &mut [f32]| {
            for (i, g) in gradients.iter_mut().enumerate() {
                *g += gradient(comm.rank(), micro, i);
            }
        };
        step(&comm, micro_steps, &mut gradients, &backward)?;
        Ok((gradients, (comm.traffic() - before).bytes))
    })?;
    let micros = |rank: usize| (0..micro_steps).map(move |micro| (rank, micro));
    let mean = |i: usize| {
        let sum: f32 = (0..ranks)
            .flat_map(micros)
            .map(|(rank, micro)| gradient(rank, micro, i))
            .sum();
        sum / (ranks * micro_steps) as f32
    };
    let expected: Vec<f32> = (0..SIZE).map(mean).collect();
    for (rank, (got, _)) in results.iter().enumerate() {
        let wrong = (0..SIZE).find(|&i| !near(expected[i], got[i]));
        let i = wrong.unwrap_or(0);
        evidence.row(
            wrong.is_none(),
            format!("rank {rank}, gradient {i}"),
            expected[i],
            got[i],
        );
    }

    let all = |other: &dyn Fn(usize, usize) -> f32| {
        results
            .iter()
            .enumerate()
            .all(|(rank, (got, _))| (0..SIZE).all(|i| near(other(rank, i), got[i])))
    };
    let sum = |rank: usize, i: usize| {
        micros(rank)
            .map(|(rank, micro)| gradient(rank, micro, i))
            .sum::<f32>()
    };
    let n = ranks as f32;
    let m = micro_steps as f32;
    evidence.means_if(
        micro_steps > 1 && all(&|_, i| expected[i] * m),
        format!(
            "{micro_steps} times too large: this is the sum of the micro-batches. With a sum, every number of \
                 micro-steps would need its own learning rate."
        ),
    );
    evidence.means_if(
        ranks > 1 && all(&|_, i| expected[i] * n),
        format!(
            "{ranks} times too large: this is a sum over the ranks, not the mean. With a sum, each additional rank \
                 makes the steps longer."
        ),
    );
    evidence.means_if(
        ranks > 1 && all(&|_, i| expected[i] * n * m),
        "This is the sum over ranks and micro-batches. The step needs the mean over both.",
    );
    evidence.means_if(
        all(&|_, i| expected[i] / m) || all(&|_, i| expected[i] / n),
        "Too small by a whole factor: your code divides twice.",
    );
    evidence.means_if(
        ranks > 1 && all(&|rank, i| sum(rank, i) / m),
        "Every rank has kept its own gradients: the ranks averaged nothing (or zeros, before `backward` had added \
         anything). Each rank will train its own model, and you will never see an error.",
    );
    let apart = results.iter().any(|(got, _)| got != &results[0].0);
    evidence.means_if(
        apart && micro_steps > 1,
        "The ranks hold different gradients: some were added after the ranks had averaged. The models drift apart from \
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
    evidence.means(
        "All ranks hold the same numbers, but not the mean. Are averaged gradients averaged again?",
    );

    if (ranks, micro_steps) == (4, 4) {
        // An all-reduce sends 2(n-1)/n times the data from every rank.
        let target = 2 * (ranks - 1) * SIZE * size_of::<f32>() / ranks;
        evidence.figure("bytes per rank and step", results[0].1, target as u64);
    }
    Ok(())
}

fn near(expected: f32, got: f32) -> bool {
    (expected - got).abs() <= 1e-6 * expected.abs()
}
