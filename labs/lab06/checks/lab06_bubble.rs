//! The check of lab06-bubble: one number, beside that of the library's simulator.

use exercise::waits;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Times, simulate};
use std::process::ExitCode;

const PIPELINE: Pipeline = Pipeline { ranks: 9, chunks: 1, micro_batches: 10 };
/// The rank that the exercise asks about.
const RANK: u64 = 2;
const TIMES: Times = Times { forward: 2.0, backward: 3.0, weights: 0.0, message: 0.0 };

pub fn main() -> ExitCode {
    run(&[("how long rank 2 waits in a step", waited)])
}

fn waited(evidence: &mut Evidence) -> Result<()> {
    let orders = Schedule::GPipe.orders(&PIPELINE)?;
    let gpipe = simulate(&PIPELINE, &orders, &TIMES)?;
    let (step, work) = (gpipe.makespan as u64, gpipe.busy as u64);
    let right = step - work;
    let got = waits();
    evidence.answer("rank 2 waits, in ms", right, got);

    let ranks = PIPELINE.ranks as u64;
    let [forward, backward] = [TIMES.forward, TIMES.backward].map(|time| time as u64);
    // For its first activations, for its first gradient, and after its last backward pass.
    let first = RANK * forward;
    let last = RANK * backward;
    let middle = right - first - last;
    evidence.means_if(got == step, "This is how long the whole step takes.");
    evidence.means_if(got == work, "This is how long rank 2 works.");
    evidence.means_if(got == ranks * right, "This is what all nine ranks wait, added up.");
    evidence.means_if(
        got == ranks * (forward + backward),
        "One rank too many is counted: how many forward passes of micro-batch 0 are over when the last rank begins?",
    );
    evidence.means_if(
        [first, last, middle, first + last, first + middle, middle + last].contains(&got),
        "Rank 2 waits three times: for its first activations, for its first gradient, and when its last backward pass is over. \
         This is not all of that.",
    );
    evidence.means_if(
        [forward, backward].map(|time| (ranks - 1) * time).contains(&got),
        "This counts only one end of the step. The last rank waits for its first activations, and after its last backward pass \
         the gradient still travels to rank 0.",
    );
    evidence.means_if(
        [100 * right / step, 100 * right / step + 1, 100 * right / work].contains(&got),
        "This looks like a share, in percent of the step or of the work. Asked for are milliseconds.",
    );
    evidence.means("A rank waits whenever it does not work. How long does the step take, and how long does a rank work?");
    Ok(())
}
