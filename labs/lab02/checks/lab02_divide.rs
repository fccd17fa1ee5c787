//! The check of lab02-divide: two ranks add up the gradients of a job's sequences, and divide by the reader's number.

use exercise::divisors;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("A: two ranks, one micro-batch each", |evidence| {
            divided(evidence, 0)
        }),
        ("B: two micro-batches on each rank", |evidence| {
            divided(evidence, 1)
        }),
        ("C: losses that are sums, of unequal batches", |evidence| {
            divided(evidence, 2)
        }),
    ])
}

/// What a micro-batch's loss is, of those of its sequences.
#[derive(PartialEq)]
enum Loss {
    Mean,
    Sum,
}

/// For each rank and micro-batch, the gradients of its sequences.
type Sequences = [&'static [&'static [f32]]; 2];

/// The jobs of the picture.
const JOBS: [(Loss, Sequences); 3] = [
    (
        Loss::Mean,
        [&[&[11.0, 13.0, 15.0, 17.0]], &[&[23.0, 25.0, 27.0, 29.0]]],
    ),
    (
        Loss::Mean,
        [
            &[&[2.0, 4.0, 6.0, 8.0], &[6.0, 8.0, 10.0, 12.0]],
            &[&[9.0, 11.0, 13.0, 15.0], &[11.0, 13.0, 15.0, 17.0]],
        ],
    ),
    (
        Loss::Sum,
        [&[&[3.0, 5.0, 6.0]], &[&[2.0, 4.0, 5.0, 7.0, 8.0]]],
    ),
];

fn divided(evidence: &mut Evidence, job: usize) -> Result<()> {
    let (loss, sequences) = &JOBS[job];
    let divisor = divisors()[job];
    let found = launch::run(2, |comm| {
        let mut gradient = [0.0];
        for micro in sequences[comm.rank()] {
            let sum: f32 = micro.iter().sum();
            gradient[0] += match loss {
                Loss::Mean => sum / micro.len() as f32,
                Loss::Sum => sum,
            };
        }
        comm.all_reduce(&mut gradient, Reduce::Sum)?;
        Ok(gradient[0])
    })?;
    // One rank, with all sequences in one batch.
    let micros = || sequences.iter().copied().flatten();
    let all: Vec<f32> = micros().copied().flatten().copied().collect();
    let expected = all.iter().sum::<f32>() / all.len() as f32;
    for (rank, sum) in found.iter().enumerate() {
        let got = sum / divisor as f32;
        evidence.row(
            got == expected,
            format!("rank {rank}: {sum} / {divisor}"),
            expected,
            got,
        );
    }

    let micro_batches = micros().count();
    let (terms, what) = match loss {
        Loss::Mean => (micro_batches, "micro-batches"),
        Loss::Sum => (all.len(), "sequences"),
    };
    let factor = terms as f32 / divisor as f32;
    evidence.means_if(
        divisor == 1,
        format!("Nothing is divided, so this is the sum over {terms} {what}: every step is {terms} times too long."),
    );
    evidence.means_if(
        *loss == Loss::Mean && divisor == all.len(),
        format!(
            "Each of the {micro_batches} losses is a mean over its 4 sequences already. If you divide by the sequences once \
             more, every step is 4 times too short, and the run seems to learn slowly."
        ),
    );
    evidence.means_if(
        *loss == Loss::Mean && divisor == 4,
        "Each loss is a mean over its 4 sequences already. What was added up after that, and not divided?",
    );
    evidence.means_if(
        *loss == Loss::Mean && divisor == 2,
        format!(
            "Divided by the ranks alone: each rank has added up 2 micro-batches before. The step is {factor} times too long, and \
             grows with each micro-batch that you add."
        ),
    );
    evidence.means_if(
        *loss == Loss::Sum && divisor == 2,
        format!(
            "Divided by the ranks, but these losses are sums: the step is {factor} times too long, and grows with the sequences \
             in a batch."
        ),
    );
    evidence.means(format!(
        "This gradient is {factor} times as large as that of one rank with all sequences. The all-reduce leaves a sum of \
         losses' gradients. How many did each of them count for?"
    ));
    Ok(())
}
