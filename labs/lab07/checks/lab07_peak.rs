//! The check of lab07-peak: the passes that a rank keeps at its peak. The last stage's are those
//! of its order, too, which the log prints.

use exercise::kept;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Work};
use std::process::ExitCode;

/// The log's job: 4 stages of 4 chunks, 8 micro-batches. All of them visit a chunk before any
/// visits the next, which is a group of 8.
const PIPELINE: Pipeline = Pipeline { ranks: 4, chunks: 4, micro_batches: 8 };
const SCHEDULE: Schedule = Schedule::Interleaved { group: 8 };

/// Allocated, and at the peak, in MB; and the logits.
const FIRST: [usize; 3] = [1_942, 7_706, 0];
const LAST: [usize; 3] = [1_958, 6_714, 197];

/// The MB of s b h, one byte for each number.
const NUMBERS: usize = 2048 * 2 * 2048 >> 20;

fn main() -> ExitCode {
    run(&[
        ("the passes that the first stage kept", first_stage),
        ("the passes that the last stage kept", last_stage),
    ])
}

/// Forward passes of the last stage before its first backward pass: so many it keeps at its peak.
fn by_the_order() -> usize {
    let order = SCHEDULE.order(&PIPELINE, PIPELINE.ranks - 1);
    order.iter().take_while(|op| op.work == Work::Forward).count()
}

/// What is left of the peak, in passes that keep s b h times so many bytes.
fn passes([allocated, peak, logits]: [usize; 3], bytes: usize) -> usize {
    (peak - allocated - logits) / (NUMBERS * bytes)
}

fn first_stage(evidence: &mut Evidence) -> Result<()> {
    let right = passes(FIRST, 22);
    if evidence.answer("first stage", right, kept().0) {
        return Ok(());
    }
    mistakes(evidence, kept().0, right, FIRST);
    Ok(())
}

fn last_stage(evidence: &mut Evidence) -> Result<()> {
    let right = by_the_order();
    if evidence.answer("last stage", right, kept().1) {
        return Ok(());
    }
    evidence.means_if(
        kept().1 == passes([LAST[0], LAST[1], 0], 22),
        "Are the logits in it? They are no pass: 197 MB are more than one.",
    );
    mistakes(evidence, kept().1, right, LAST);
    Ok(())
}

fn mistakes(evidence: &mut Evidence, got: usize, right: usize, memory: [usize; 3]) {
    evidence.means_if(
        [0, memory[2]].iter().any(|&logits| got == passes([0, memory[1], logits], 22)),
        "The peak is everything that was there: weights, gradients and optimizer, too. What of it is left if `allocated` goes?",
    );
    evidence.means_if(
        got == passes(memory, 34),
        "So a pass keeps 34 bytes for each number. Two tensor ranks share 24 of them.",
    );
    evidence.means_if(
        got == passes(memory, 17),
        "So a pass keeps 17 bytes for each number. Tensor ranks share 24 bytes, and not the other 10.",
    );
    evidence.means_if(
        got == right / PIPELINE.chunks || got == right.div_ceil(PIPELINE.chunks),
        "These are micro-batches. A micro-batch visits this rank four times, once for each of its layers, and each visit is a pass.",
    );
    evidence.means_if(
        got == right + 1,
        "Rounded up: then more would have been kept than there was. What is left over is less than one pass.",
    );
    evidence.means_if(
        got > PIPELINE.chunks * PIPELINE.micro_batches,
        "A rank has 4 chunks and 8 micro-batches, so it runs no more than 32 forward passes in a step.",
    );
    evidence.means("Peak less allocated, in units of one pass. How many MB does a pass keep?");
}
