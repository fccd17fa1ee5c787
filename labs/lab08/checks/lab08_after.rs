//! The check of lab08-after: three numbers, beside those of the library's policies, counters and draws.

use exercise::answers;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::train::{Counters, Ranges, SkipPolicy, StepSize};
use std::process::ExitCode;

const SIZE: StepSize = StepSize {
    accumulation: 4,
    samples: 8,
};
/// The first and the last step with damaged text.
const BAD: [usize; 2] = [3, 5];

fn main() -> ExitCode {
    run(&[
        ("what step 6 learns from", first),
        ("where the schedule is", schedule),
        ("what one draw per skipped step costs", learned),
    ])
}

/// The micro-batches, from 1, that each step learns from, and the schedule's position when it begins.
fn steps(policy: SkipPolicy) -> Result<Vec<(Vec<usize>, usize)>> {
    let ranges = Ranges::parse(&BAD.map(|step| step as i64))?;
    let mut counters = Counters::default();
    let mut steps = Vec::new();
    for step in 1..=BAD[1] + 1 {
        let schedule = counters.schedule;
        let plan = policy.plan(&ranges, step, SIZE.accumulation);
        for _ in 0..plan.discard {
            counters.draw();
        }
        let mut learns = Vec::new();
        if plan.train {
            learns.extend((0..SIZE.accumulation).map(|_| counters.draw() + 1));
            counters.taken(SIZE);
        } else {
            counters.skipped(SIZE);
        }
        steps.push((learns, schedule));
    }
    Ok(steps)
}

fn first(evidence: &mut Evidence) -> Result<()> {
    let asked = steps(SkipPolicy::Count)?[BAD[1]].0[0];
    let got = answers().first;
    evidence.same("step 6: its first micro-batch", asked, got);
    let good = (BAD[0] - 1) * SIZE.accumulation;
    let skipped = BAD[1] - BAD[0] + 1;
    evidence.means_if(
        got == good + 1,
        "So nothing is drawn in steps 3 to 5, and step 6 learns from the damaged text that was to be skipped.",
    );
    evidence.means_if(
        got == good + skipped + 1,
        "So each skipped step draws one micro-batch. A step has 4: damaged text is left, and step 6 learns from it.",
    );
    evidence.means_if(
        got + 1 == asked,
        "This is the last micro-batch of step 5. They count from 1: step 1 has 1 to 4, step 2 has 5 to 8.",
    );
    evidence.means_if(
        got == asked - SIZE.accumulation,
        "These are the micro-batches of step 5, which is skipped, too: both ends belong to the range.",
    );
    evidence.means_if(
        got == asked + SIZE.accumulation,
        "These are the micro-batches of step 7. Five steps come before step 6.",
    );
    evidence.means("Step 6 learns from what it would have learned from if nothing were skipped. Each step before it has used up 4.");
    Ok(())
}

fn schedule(evidence: &mut Evidence) -> Result<()> {
    let asked = steps(SkipPolicy::Count)?[BAD[1]].1;
    let got = answers().schedule;
    evidence.same("step 6: steps of the schedule before it", asked, got);
    evidence.means_if(
        got == BAD[0] - 1,
        "So the schedule waits while steps are skipped, and step 6 has the learning rate of step 3. The learning rate follows \
         the data: a skipped step uses up both.",
    );
    evidence.means_if(
        got == asked + 1,
        "Step 1 is at 0 in the picture, so step 6 is not at 6.",
    );
    evidence.means("Step 6 has the learning rate that it would have had if nothing were skipped.");
    Ok(())
}

fn learned(evidence: &mut Evidence) -> Result<()> {
    let bad = (BAD[0] - 1) * SIZE.accumulation + 1..=BAD[1] * SIZE.accumulation;
    let all = bad.clone().count();
    let steps = steps(SkipPolicy::OneBatch)?;
    let asked = steps
        .iter()
        .flat_map(|(learns, _)| learns)
        .filter(|micro| bad.contains(micro))
        .count();
    let got = answers().learned;
    evidence.same("bad micro-batches that the model learns", asked, got);
    let skipped = all / SIZE.accumulation;
    evidence.means_if(
        got == skipped,
        "So many are discarded: one in each of 3 steps. The model learns the others.",
    );
    evidence.means_if(
        got == all,
        "So many are bad. Three of them are drawn and discarded.",
    );
    evidence.means_if(
        got == SIZE.accumulation - 1,
        "So many of one step are left. Three steps are skipped.",
    );
    evidence.means_if(
        got == 0,
        "The model would learn none if a skipped step drew all of its 4 micro-batches. This policy draws one.",
    );
    evidence.means("Three steps have 4 bad micro-batches each, and one of each 4 is discarded.");
    Ok(())
}
