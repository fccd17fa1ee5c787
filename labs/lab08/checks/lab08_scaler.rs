//! The check of lab08-scaler: the scale after every step of some runs, by what Megatron-LM's own
//! code gave; then a whole step.

use exercise::Scaler;
use kit::check::{Evidence, is_near, number, run};
use lab08::skipping::{LossScaler, ScalerConfig, ScalerRule};
use shardlab::Result;
use shardlab::train::global_norm;
use std::process::ExitCode;

const WINDOW: u64 = 4;

fn main() -> ExitCode {
    run(&[
        ("10 good steps", |evidence| vector(evidence, "gggggggggg")),
        ("4 overflows, then good steps", |evidence| vector(evidence, "iiiigggggg")),
        ("overflows with a good step between", |evidence| {
            vector(evidence, "igigigigigig")
        }),
        ("good steps on both sides of an overflow", restart),
        ("an overflow before a growth, and two after it", |evidence| {
            vector(evidence, "iggggiigggg")
        }),
        ("the scale never falls below its minimum", minimum),
        ("a step that overflowed is not taken", overflow),
        ("a good step: its gradients and its norm", clipped),
        ("a step after which the scale grows", grows),
    ])
}

/// A rule's exponents of the scale after each step, from 2^16. In `steps`, `i` is an overflow and
/// `g` a good step.
fn exponents(steps: &str, update: &mut dyn FnMut(bool) -> f64) -> Vec<f64> {
    steps.chars().map(|step| update(step == 'i').log2()).collect()
}

fn published(rule: ScalerRule, steps: &str, change: impl Fn(&mut ScalerConfig)) -> Vec<f64> {
    let mut config = ScalerConfig { initial: 65_536.0, window: WINDOW, ..rule.defaults() };
    change(&mut config);
    let mut scaler = LossScaler::new(config);
    // No run here comes to the minimum, which is DeepSpeed's only error.
    exponents(steps, &mut |overflow| {
        scaler.update(overflow).map_or(f64::NAN, |()| scaler.scale())
    })
}

fn listed(exponents: &[f64]) -> String {
    exponents.iter().map(|exponent| number(*exponent)).collect::<Vec<_>>().join(" ")
}

/// A rule that is wrong in one point: it refills the hysteresis when the scale shrinks, never
/// refills it, goes on counting good steps over an overflow, goes on when the scale has grown, or
/// needs a good step more each time.
fn wrong(steps: &str, mistake: &str) -> Vec<f64> {
    let mut scale = 65_536.0;
    let mut good = 0;
    let mut remaining = 2;
    exponents(steps, &mut |overflow| {
        if overflow {
            good = if mistake == "count" { good } else { 0 };
            remaining -= i32::from(remaining > 0);
            if remaining == 0 {
                scale /= 2.0;
                remaining = if mistake == "shrink" { 2 } else { 0 };
            }
        } else {
            good += 1;
            if good == WINDOW + u64::from(mistake == "late") || mistake == "growth" && good > WINDOW
            {
                scale *= 2.0;
                good = if mistake == "growth" { good } else { 0 };
                remaining = if mistake == "never" { remaining } else { 2 };
            }
        }
        scale
    })
}

fn vector(evidence: &mut Evidence, steps: &str) -> Result<()> {
    use ScalerRule::{DeepSpeed0171, Megatron};
    let asked = published(Megatron, steps, |_| ());
    let mut scaler = Scaler::new(65_536.0, 1.0, WINDOW, 2);
    let mut call = 0;
    let got = exponents(steps, &mut |overflow| {
        call += 1;
        let below = if overflow && scaler.remaining == 0 {
            ". `remaining` is 0 already: Megatron-LM's own count is a Python number and goes below 0 here, and a u64 cannot"
        } else {
            ""
        };
        evidence.given(format!("step {call} of {steps}: g is a good step, i an overflow{below}"));
        scaler.step(&mut [if overflow { f32::INFINITY } else { 1.0 }], 1.0);
        scaler.scale
    });
    let at = (0..asked.len()).find(|&i| got[i] != asked[i]);
    let i = at.unwrap_or(asked.len() - 1);
    let what = format!("{} {}", &steps[..=i], "log2 of the scale");
    evidence.row(at.is_none(), what, listed(&asked[..=i]), listed(&got[..=i]));
    if evidence.agrees() {
        return Ok(());
    }
    let is = |other: Vec<f64>| other == got;
    evidence.means_if(
        steps.contains('i') && is(published(Megatron, &steps.replace('i', "g"), |_| ())),
        "An overflow counts as a good step here. The gradients of this run overflow to infinity, which is no NaN: `is_finite` is \
         false for both.",
    );
    evidence.means_if(
        got.iter().all(|exponent| *exponent == got[0]) && !steps.contains('i'),
        "The scale never grows. After 4 good steps in a row it doubles.",
    );
    evidence.means_if(
        is(wrong(steps, "late")),
        "The scale grows after every 5th good step. `window` is 4 here: the 4th good step is the one after which it grows.",
    );
    evidence.means_if(
        is(published(DeepSpeed0171, steps, |_| ())),
        "This is DeepSpeed's rule from 0.17.1 on: at the start and after an overflow, the scale grows one good step later. It \
         counts only the good steps before this one. Megatron-LM counts this one, too, and so did DeepSpeed up to 0.17.0.",
    );
    evidence.means_if(
        is(wrong(steps, "growth")),
        "After the first growth the scale doubles in every good step. When it has grown, the count of good steps begins again.",
    );
    evidence.means_if(
        is(published(Megatron, steps, |config| config.consecutive_hysteresis = true)),
        "A good step restores `remaining`. So overflows that come every second step never shrink the scale, and every second \
         step is lost. DeepSpeed has this as an option, consecutive_hysteresis. In Megatron-LM only growth restores it.",
    );
    evidence.means_if(
        is(published(Megatron, steps, |config| config.hysteresis = 1)),
        "The first overflow halves the scale already. `remaining` begins at 2: the first overflow leaves 1, the second 0.",
    );
    evidence.means_if(
        is(published(Megatron, steps, |config| config.hysteresis = 3)),
        "The scale shrinks one overflow too late. `remaining` begins at 2, and the overflow that takes it to 0 halves the scale.",
    );
    evidence.means_if(
        is(wrong(steps, "shrink")),
        "`remaining` is restored when the scale shrinks, so only every second overflow in a row halves it. Nothing but growth \
         restores it: from the second overflow on, each one halves the scale.",
    );
    evidence.means_if(
        is(wrong(steps, "never")),
        "`remaining` is not restored when the scale grows. So an overflow from before the growth still counts after it, and here the \
         next one halves the scale. Growth restores `remaining`.",
    );
    evidence.means_if(
        is(wrong(steps, "count")),
        "The count of good steps goes on over an overflow. The scale grows after 4 good steps in a row: an overflow sets the \
         count to 0.",
    );
    evidence.means(
        "g is a good step, i an overflow. The first exponent that differs is the last one shown.",
    );
    Ok(())
}

fn restart(evidence: &mut Evidence) -> Result<()> {
    vector(evidence, "iggiggggg")?;
    if evidence.agrees() {
        vector(evidence, "ggiggggg")
    } else {
        Ok(())
    }
}

fn minimum(evidence: &mut Evidence) -> Result<()> {
    let overflows = |scale: f64, min: f64| -> Vec<f64> {
        let mut scaler = Scaler::new(scale, min, WINDOW, 2);
        (0..6)
            .map(|_| {
                scaler.step(&mut [f32::INFINITY], 1.0);
                scaler.scale
            })
            .collect()
    };
    let scales = overflows(4.0, 1.0);
    evidence.row(
        scales == [4.0, 2.0, 1.0, 1.0, 1.0, 1.0],
        "6 overflows from 4, min 1",
        "4 2 1 1 1 1",
        listed(&scales),
    );
    let between = overflows(6.0, 4.0);
    evidence.row(
        between == [6.0, 4.0, 4.0, 4.0, 4.0, 4.0],
        "6 overflows from 6, min 4",
        "6 4 4 4 4 4",
        listed(&between),
    );
    evidence.means_if(
        scales[5] < 1.0,
        "The scale falls below `min`. Far below 1 it makes gradients smaller, and they become 0.",
    );
    evidence.means_if(
        between[5] < 4.0,
        "The scale falls below `min`: 6 is above it, and half of 6 is not. Take the larger of half the scale and `min`.",
    );
    evidence.means_if(
        between[5] == 6.0,
        "Half of 6 is below `min`, and the scale stays where it overflows, step after step, although `min` is free.",
    );
    evidence.means("At `min` an overflow leaves the scale as it is.");
    Ok(())
}

fn overflow(evidence: &mut Evidence) -> Result<()> {
    for bad in [f32::INFINITY, f32::NAN] {
        let mut scaler = Scaler::new(65_536.0, 1.0, WINDOW, 1);
        let at = format!("a gradient of {bad}");
        evidence.given(&at);
        let norm = scaler.step(&mut [1.0, bad, 2.0], 1.0);
        evidence.row(
            norm.is_none(),
            format!("{at}: step"),
            "None",
            norm.map_or("None".into(), |norm| format!("Some({norm})")),
        );
        evidence.near(format!("{at}: the next scale"), 32_768.0, scaler.scale);
        if evidence.agrees() {
            continue;
        }
        evidence.means_if(
            norm.is_some() && bad.is_nan(),
            "A NaN is an overflow, too: infinity minus infinity is NaN. No comparison with NaN is true; ask `is_finite`.",
        );
        evidence.means_if(
            norm.is_some(),
            "The optimizer would take this step: one infinite gradient makes weights and moments infinite or NaN for good.",
        );
        evidence.means("A step that is not taken still updates the scale, as an overflow.");
        break;
    }
    Ok(())
}

/// One good step with gradients whose norm is 5 without the scale.
fn step(
    evidence: &mut Evidence,
    scale: f64,
    clip: f64,
    good: u64,
) -> (Scaler, Option<f64>, Vec<f32>) {
    let mut scaler = Scaler { good, ..Scaler::new(scale, 1.0, WINDOW, 2) };
    let mut gradients = [3.0, -4.0].map(|g| g * scale as f32);
    evidence.given(format!("a norm of 5, times a scale of {scale}, to clip at {clip}"));
    let norm = scaler.step(&mut gradients, clip);
    (scaler, norm, gradients.to_vec())
}

/// Compares what `step` returned for a good step whose norm is 5. Returns whether it was a norm.
fn returned(evidence: &mut Evidence, at: &str, norm: Option<f64>) -> bool {
    let Some(norm) = norm else {
        evidence.row(false, at, "Some(5)", "None");
        evidence.means(
            "This step did not overflow: no gradient is infinite or NaN. An fp16 gradient is at most 65,504, but the norm of many \
             gradients is an f64, and may be larger.",
        );
        return false;
    };
    evidence.near(at, 5.0, norm);
    true
}

fn clipped(evidence: &mut Evidence) -> Result<()> {
    for clip in [10.0, 1.0] {
        let scale = 65_536.0;
        let (_, norm, gradients) = step(evidence, scale, clip, 0);
        let asked = clip.min(5.0);
        let got = global_norm(&gradients);
        let at = format!("norm 5, clip {clip}: what `step` returns");
        if !returned(evidence, &at, norm) {
            break;
        }
        evidence.near(format!("norm 5, clip {clip}: norm afterwards"), asked, got);
        if evidence.agrees() {
            continue;
        }
        evidence.means_if(
            is_near(clip / scale, got),
            format!(
                "Your code clips before it unscales. With the scale of {scale} in it, nearly every norm is larger than `clip`, \
                 so nearly every step is clipped. Then the scale is divided out, and the step is {scale} times too short. Adam \
                 hides this: it divides by the gradient's own size, so the loss falls as if nothing were wrong."
            ),
        );
        evidence.means_if(
            is_near(5.0 * scale, got) || is_near(asked * scale, got),
            "The gradients still have the scale. The optimizer needs them without it.",
        );
        evidence.means_if(
            is_near(asked, got),
            "The gradients are right, but the log's norm is not. It is the norm without the scale, before clipping.",
        );
        evidence.means_if(
            is_near(5.0, got),
            "The gradients have lost the scale, but nothing clips them.",
        );
        evidence.means(
            "First unscale: divide by `scale`. Then clip: if the norm is above `clip`, multiply by clip / norm.",
        );
    }
    Ok(())
}

fn grows(evidence: &mut Evidence) -> Result<()> {
    let (scaler, norm, gradients) = step(evidence, 1_024.0, 10.0, WINDOW - 1);
    let got = global_norm(&gradients);
    evidence.near("the next scale", 2_048.0, scaler.scale);
    if !returned(evidence, "what `step` returns", norm) {
        return Ok(());
    }
    evidence.near("norm afterwards", 5.0, got);
    evidence.means_if(
        is_near(2.5, got) || norm.is_some_and(|norm| is_near(2.5, norm)),
        "The gradients are divided by the next step's scale. They were multiplied by the scale before it has grown.",
    );
    evidence
        .means("A good step updates the scale once, and its gradients have the scale from before.");
    Ok(())
}
