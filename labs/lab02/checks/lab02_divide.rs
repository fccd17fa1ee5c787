//! The check of lab02-divide: three ranks add up the gradients of their samples, and divide by the
//! reader's number.

use exercise::divisor;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::{Result, launch};
use std::process::ExitCode;

pub fn main() -> ExitCode {
    run(&[("60, divided by your number", divided)])
}

/// For each rank and batch, the gradients of its samples. Their means are the picture's numbers.
const SAMPLES: [[[f32; 4]; 2]; 3] = [
    [[2.0, 4.0, 6.0, 8.0], [6.0, 8.0, 10.0, 12.0]],
    [[9.0, 11.0, 13.0, 15.0], [11.0, 13.0, 15.0, 17.0]],
    [[5.0, 7.0, 9.0, 11.0], [9.0, 11.0, 13.0, 15.0]],
];

fn divided(evidence: &mut Evidence) -> Result<()> {
    let divisor = divisor();
    let found = launch::run(3, |comm| {
        let batches = &SAMPLES[comm.rank()];
        let means = batches.map(|batch| batch.iter().sum::<f32>() / batch.len() as f32);
        let mut gradient = [means.iter().sum::<f32>()];
        comm.all_reduce(&mut gradient, Reduce::Sum)?;
        Ok(gradient[0])
    })?;
    // One rank, with all samples in one batch.
    let all = SAMPLES.as_flattened().as_flattened();
    let mean = all.iter().sum::<f32>() / all.len() as f32;
    // Every rank has the same sum.
    let sum = found[0];
    evidence.answer(format!("{sum} is divided by"), sum / mean, divisor as f32);
    evidence.means_if(
        divisor as f32 == mean,
        "This is the gradient. Asked for is the number that 60 is divided by.",
    );
    evidence.means_if(divisor == 0, "Nothing can be divided by 0.");
    evidence.means_if(
        divisor == 1,
        "Nothing is divided: this gradient is a sum, and grows with every rank that joins.",
    );
    evidence.means_if(
        divisor == 2,
        "Divided by the batches of one rank. The all-reduce has added up those of the others, too.",
    );
    evidence.means_if(
        divisor == 3,
        "Divided only by the ranks: this gradient grows with every batch that a rank adds up. Clipping then shortens it more \
         often than it should.",
    );
    evidence.means_if(
        [4, 8, 12, 24].contains(&divisor),
        "Each loss is a mean over its samples already. Do not divide by samples once more: what was added up after that?",
    );
    evidence.means(
        "A mean is a sum, divided by the number of what was added up. What was added up to 60?",
    );
    Ok(())
}
