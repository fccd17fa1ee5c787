//! The check of lab03-schedule: its phases one after the other, then its limits.

use exercise::{Schedule, learning_rate};
use kit::check::{Evidence, is_near, run};
use shardlab::Result;
use std::f64::consts::PI;
use std::process::ExitCode;

const SCHEDULE: Schedule = Schedule { lr: 1e-3, min_lr: 1e-4, warmup: 100, decay_steps: 500 };

fn main() -> ExitCode {
    run(&[
        ("the warm-up rises evenly, and its last step has lr", warm_up),
        ("the decay begins at lr and ends at min_lr", ends),
        ("between them it is half a cosine", cosine),
        ("after decay_steps it stays at min_lr", floor),
        ("without warm-up, step 0 has lr", no_warm_up),
        ("the whole schedule, with other numbers", others),
    ])
}

fn at(step: usize) -> f64 {
    learning_rate(&SCHEDULE, step)
}

fn compare(evidence: &mut Evidence, step: usize, expected: f64) {
    evidence.given(format!(
        "step {step}, warmup {}, decay_steps {}",
        SCHEDULE.warmup, SCHEDULE.decay_steps
    ));
    evidence.near(format!("step {step}"), expected, at(step));
}

fn warm_up(evidence: &mut Evidence) -> Result<()> {
    for (step, expected) in [(0, 1e-5), (1, 2e-5), (49, 5e-4), (99, 1e-3)] {
        compare(evidence, step, expected);
    }
    evidence.means_if(
        at(0) == 0.0,
        "At step 0 the rate is 0, so the model computes a whole step and learns nothing from it. Steps are counted from 0, and \
         the first of 100 has a hundredth of lr.",
    );
    evidence.means(
        "lr = 0.001 and warmup = 100: every step adds 0.00001, and step 99 is the hundredth.",
    );
    Ok(())
}

/// Whether the reader's rates in the middle of the decay are those of `curve`, a function of the
/// progress.
fn decays(curve: &dyn Fn(f64) -> f64) -> bool {
    [200, 300, 400]
        .into_iter()
        .all(|step| is_near(curve((step - 100) as f64 / 400.0), at(step)))
}

/// The rate at which the decay is when the cosine has this value.
fn height(cosine: f64) -> f64 {
    1e-4 + 9e-4 * (1.0 + cosine) / 2.0
}

const STRETCHED: &str = "The decay is too slow: your progress is (step - warmup) / decay_steps, so it is 0.8 at step 500. \
    The rate is still above min_lr when the decay is over, and drops there at once, if it does. The decay has decay_steps - \
    warmup steps.";

const QUARTER: &str = "This is a quarter of a wave: the angle of your cosine ends at pi / 2, where a cosine falls fastest. \
    So the last steps of the decay are still long. Half a cosine goes on to pi, and ends gently.";

fn ends(evidence: &mut Evidence) -> Result<()> {
    for (step, expected) in [(100, 1e-3), (500, 1e-4)] {
        compare(evidence, step, expected);
    }
    evidence.means_if(
        is_near(0.0, at(500)),
        "The rate falls to 0, not to min_lr: the run's last steps would teach nothing.",
    );
    evidence.means_if(
        is_near(1.1e-3, at(100)) && is_near(1e-4, at(500)),
        "At step 100 the rate is lr + min_lr: the cosine falls by all of lr, and min_lr comes on top. So a run's longest steps \
         are longer than lr, just when the warm-up has ended. From lr down to min_lr it falls by lr - min_lr.",
    );
    evidence.means_if(
        is_near(1.01e-3, at(100)),
        "Step 100 still belongs to your warm-up, which goes on above lr. It is one step too long: steps are counted from 0, so \
         the first 100 are 0 to 99.",
    );
    evidence
        .means_if(is_near(1e-3, at(100)) && is_near(height((0.8 * PI).cos()), at(500)), STRETCHED);
    evidence.means_if(is_near(1e-3, at(100)) && is_near(height(0.0), at(500)), QUARTER);
    evidence.means_if(
        at(100) < 1e-3 && is_near(1e-4, at(500)),
        "The decay begins before the warm-up is over. Its progress must be 0 at step `warmup`, not at step 0.",
    );
    evidence.means_if(
        is_near(1e-3, at(500)),
        "At the end of the decay the rate is still lr, or lr again.",
    );
    evidence.means(
        "The decay should begin at lr, at step 100, and end at min_lr, at step 500. Put both steps into your formula by hand.",
    );
    Ok(())
}

fn cosine(evidence: &mut Evidence) -> Result<()> {
    // A quarter of the way: (1 + cos 45°) / 2 of the distance is left.
    let quarter = 1e-4 + 9e-4 * (1.0 + 0.5f64.sqrt()) / 2.0;
    for (step, expected) in [(200, quarter), (300, 5.5e-4), (400, 1.1e-3 - quarter)] {
        compare(evidence, step, expected);
    }
    evidence.means_if(
        is_near(7.75e-4, at(200)),
        "This is a straight line. A cosine stays near lr at first, falls fastest in the middle, and ends gently.",
    );
    evidence.means_if(
        is_near(1e-4, at(300)),
        "The rate has reached min_lr halfway, as a whole wave does. Half a cosine goes from 0 to pi.",
    );
    evidence.means_if(
        decays(&|_| 1e-3),
        "The rate is lr all through the decay, and drops to min_lr at its end at once: the loss never gets the smaller and \
         smaller steps with which it settles. A quotient of two whole numbers drops what comes after the point, so a progress \
         below 1 becomes 0: turn both numbers into f64 before you divide.",
    );
    evidence.means_if(decays(&|progress| height((0.8 * PI * progress).cos())), STRETCHED);
    evidence.means_if(
        decays(&|progress| height((0.5 * PI * progress).cos()))
            || decays(&|progress| 1e-4 + 9e-4 * (0.5 * PI * progress).cos()),
        QUARTER,
    );
    evidence.means_if(
        decays(&|progress| 1e-3 * (1.0 + (PI * progress).cos()) / 2.0),
        "This cosine falls by all of lr, towards 0. So the rate has passed min_lr before the decay is over: a run spends its \
         last steps of decay at min_lr, or even below it. From lr down to min_lr it falls by lr - min_lr, and ends there by \
         itself.",
    );
    evidence.means("In the middle of the decay the rate is halfway between lr and min_lr, and falls fastest there.");
    Ok(())
}

fn floor(evidence: &mut Evidence) -> Result<()> {
    for step in [501, 700, 900, 100_000] {
        compare(evidence, step, 1e-4);
    }
    evidence.means_if(
        at(900) > 5e-4,
        "The cosine rises again: a run that goes on beyond decay_steps would end with long steps, and its loss would rise \
         again.",
    );
    evidence.means("From decay_steps on, the rate stays the same.");
    Ok(())
}

fn no_warm_up(evidence: &mut Evidence) -> Result<()> {
    let schedule = Schedule { warmup: 0, ..SCHEDULE };
    for (step, expected) in [(0, 1e-3), (250, 5.5e-4)] {
        let at = format!("warmup 0, step {step}");
        evidence.given(&at);
        evidence.near(at, expected, learning_rate(&schedule, step));
    }
    let none = Schedule { warmup: 5, decay_steps: 5, ..SCHEDULE };
    let at = "warmup 5, decay_steps 5, step 5";
    evidence.given(at);
    let got = learning_rate(&none, 5);
    evidence.row((1e-4..=1e-3).contains(&got), at, "from min_lr to lr", got);
    evidence.means_if(
        got.is_nan(),
        "0 / 0: the decay may have no steps at all, and a rate that is not a number ruins the run.",
    );
    evidence.means("A warm-up of 0 steps has no first step. The decay begins at once.");
    Ok(())
}

fn others(evidence: &mut Evidence) -> Result<()> {
    let schedule = Schedule { lr: 6e-4, min_lr: 0.0, warmup: 7, decay_steps: 600_007 };
    for (step, expected) in
        [(0, 6e-4 / 7.0), (6, 6e-4), (300_007, 3e-4), (600_007, 0.0), (1_000_000, 0.0)]
    {
        evidence.given(format!("step {step}, warmup 7, decay_steps 600,007"));
        evidence.near(format!("step {step}"), expected, learning_rate(&schedule, step));
    }
    evidence.means(
        "lr 0.0006, min_lr 0, warmup 7, decay_steps 600,007: does your code contain a number that should be a name?",
    );
    Ok(())
}
