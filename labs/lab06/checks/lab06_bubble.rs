//! The check of lab06-bubble: four numbers, beside those of the library's simulator.

use exercise::answers;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Simulated, Times, simulate};
use std::process::ExitCode;

const RANKS: usize = 3;
const MICRO_BATCHES: usize = 6;
/// The rank that the exercise asks about.
const RANK: usize = 1;
const TIMES: Times = Times {
    forward: 1.0,
    backward: 2.0,
    weights: 0.0,
    message: 0.0,
};

fn main() -> ExitCode {
    run(&[
        ("how long the step takes", step),
        ("how long rank 1 waits", waits),
        ("what rank 1 keeps under GPipe", kept),
        ("what rank 1 keeps under 1F1B", kept_1f1b),
    ])
}

fn simulated(schedule: Schedule) -> Result<Simulated> {
    let pipeline = Pipeline {
        ranks: RANKS,
        chunks: 1,
        micro_batches: MICRO_BATCHES,
    };
    Ok(simulate(&pipeline, &schedule.orders(&pipeline)?, &TIMES)?)
}

fn step(evidence: &mut Evidence) -> Result<()> {
    let gpipe = simulated(Schedule::GPipe)?;
    let got = answers().step;
    evidence.same("the step, in ms", gpipe.makespan as u64, got);
    let work = gpipe.busy as u64;
    let pass = (TIMES.forward + TIMES.backward) as u64;
    let ends = [TIMES.forward, TIMES.backward].map(|time| work + (RANKS as u64 - 1) * time as u64);
    evidence.means_if(
        got == work,
        "This is the time in which one rank works. But the last rank begins later, and the first one ends later: somebody \
         waits all the time.",
    );
    evidence.means_if(
        got == work * RANKS as u64,
        "So long would it take if one rank worked at a time. With micro-batches the ranks work at the same time, except at \
         the beginning and at the end.",
    );
    evidence.means_if(
        got == work + RANKS as u64 * pass,
        "The pipeline fills once too often here. The last of 3 ranks waits for 2 forward passes, not for 3: count the ranks \
         before it.",
    );
    evidence.means_if(
        ends.contains(&got),
        "This has one end of the bubble alone. The last rank waits for its first activations, and after its last backward \
         pass the gradient still travels to rank 0.",
    );
    evidence.means(
        "A step has the time in which a rank works, and the bubble: until the last rank begins, and after it has ended.",
    );
    Ok(())
}

fn waits(evidence: &mut Evidence) -> Result<()> {
    let gpipe = simulated(Schedule::GPipe)?;
    let bubble = (gpipe.makespan - gpipe.busy) as u64;
    let got = answers().waits;
    evidence.same("rank 1 waits, in ms", bubble, got);
    let ends = [TIMES.forward as u64, TIMES.backward as u64];
    evidence.means_if(
        got == ends[0] + ends[1],
        "This is the wait for its first activations, and the one at the end. Rank 1 also waits in the middle: it has run all \
         its forward passes, and its first gradient is not there yet.",
    );
    evidence.means_if(
        ends.contains(&got),
        "This is one of the waits alone. All waits of rank 1 together are the step less the time in which it works.",
    );
    evidence.means_if(
        got == bubble * RANKS as u64,
        "This is the bubble of all three ranks together. Each rank has the same share of it.",
    );
    evidence.means_if(
        [25, 33].contains(&got),
        "This looks like a share, in percent of the step or of the work. Asked for are milliseconds.",
    );
    evidence.means(
        "Every rank works equally long, so every rank waits equally long: the step, less its work.",
    );
    Ok(())
}

fn kept(evidence: &mut Evidence) -> Result<()> {
    let most = simulated(Schedule::GPipe)?.peaks[RANK] as u64;
    let got = answers().kept;
    evidence.same("micro-batches kept under GPipe", most, got);
    evidence.means_if(
        got <= RANKS as u64,
        "This would be enough under 1F1B. GPipe runs no backward pass before all forward passes are over, and a backward \
         pass is what frees activations.",
    );
    evidence.means("When the first backward pass begins, which forward passes have run, and which activations are free?");
    Ok(())
}

fn kept_1f1b(evidence: &mut Evidence) -> Result<()> {
    let peaks = simulated(Schedule::OneForwardOneBackward)?.peaks;
    let got = answers().kept_1f1b;
    evidence.same("micro-batches kept under 1F1B", peaks[RANK] as u64, got);
    evidence.means_if(
        got == MICRO_BATCHES as u64,
        "This is GPipe's number. Under 1F1B a micro-batch is freed as soon as its gradient has come back.",
    );
    evidence.means_if(
        got == peaks[0] as u64,
        "So many does rank 0 keep: its micro-batches are away for the longest time. Rank 1 is nearer to the end.",
    );
    evidence.means_if(
        got == peaks[RANKS - 1] as u64,
        "So many does the last rank keep, which computes the loss itself. Rank 1 works on one more while its gradient is away.",
    );
    evidence.means("Follow micro-batch 0 from rank 1 to the last rank and back. What does rank 1 run meanwhile?");
    Ok(())
}
