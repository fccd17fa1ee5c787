//! The check of lab08-after: one number, beside that of the lab's policies, counters and draws.

use exercise::first;
use kit::check::{Evidence, run};
use lab08::skipping::{Counters, Ranges, SkipPolicy, StepSize};
use shardlab::Result;
use std::process::ExitCode;

const SIZE: StepSize = StepSize { accumulation: 8, samples: 16 };
/// The first and the last step that is skipped.
const SKIPPED: [usize; 2] = [11, 15];

pub fn main() -> ExitCode {
    run(&[("with which micro-batch step 16 begins", begins)])
}

/// The first micro-batch, from 1, of the step after the range.
fn after(policy: SkipPolicy) -> Result<usize> {
    let ranges = Ranges::parse(&SKIPPED.map(|step| step as i64))?;
    let mut counters = Counters::default();
    for step in 1..ranges.after() {
        let plan = policy.plan(&ranges, step, SIZE.accumulation);
        for _ in 0..plan.discard {
            counters.draw();
        }
        if plan.train {
            (0..SIZE.accumulation).for_each(|_| {
                counters.draw();
            });
            counters.taken(SIZE);
        } else {
            counters.skipped(SIZE);
        }
    }
    Ok(counters.draw() + 1)
}

fn begins(evidence: &mut Evidence) -> Result<()> {
    let asked = after(SkipPolicy::Count)?;
    let got = first();
    evidence.answer("step 16 begins with micro-batch", asked, got);
    let per_step = SIZE.accumulation;
    let good = (SKIPPED[0] - 1) * per_step;
    evidence.means_if(
        got == good + 1,
        "So nothing is drawn in steps 11 to 15, and step 16 learns from the text that was to be skipped.",
    );
    evidence.means_if(
        got == good + SKIPPED[1] - SKIPPED[0] + 2,
        "So each skipped step draws one micro-batch. A step has 8: most of the text that was to be skipped is left, and step 16 \
         learns from it.",
    );
    evidence.means_if(
        got == after(SkipPolicy::OneBatch)?,
        "So it is with `one-batch`, which does not count a skipped step: all later steps have moved.",
    );
    evidence.means_if(
        got + 1 == asked,
        "Micro-batches count from 1: step 1 ends with micro-batch 8, and step 2 begins with the next one.",
    );
    evidence.means_if(
        got == asked + 1,
        "One too far: step 15 ends with the micro-batch two before this one.",
    );
    evidence.means_if(
        got == asked - per_step,
        "With this one step 15 would begin. It is skipped, too: both ends belong to the range.",
    );
    evidence.means_if(got == asked + per_step - 1, "With this one step 16 ends.");
    evidence.means_if(got == asked + per_step, "With this one step 17 begins.");
    evidence.means("What would step 16 learn from if no step were skipped? A skipped step uses up what a step uses up.");
    Ok(())
}
