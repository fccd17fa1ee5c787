//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use crate::skipping::{LossScaler, ScalerRule};
use anyhow::{Result, ensure};
use clap::Parser;
use half::bf16;
use kit::show::{significant, thousands};
use kit::{Ask, Question};
use shardlab::data::Corpus;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, first_line_of_a_log, a_small_update, more_devices];

/// Which data the first step after skipped ones learns from.
fn prediction() -> Result<Question> {
    let Args { train, survive, steps, .. } = Args::parse_from(["lab08"]);
    let config = train.resolve(2, Some(steps), &Corpus::find(None)?)?;
    let (bad, _) = survive.resolve(&config)?;
    let each = config.grad_accum;
    // Micro-batches and steps are counted from 1 on the screen.
    let (first, last) = (bad.start / each + 1, bad.end / each);
    let after = last + 1;
    let next = bad.end + 1;
    Ok(Question::amount(
        ["lab08", "The run"],
        format!(
            "Every step learns from {each} micro-batches, number 1 to {each} in step 1. Steps {first} to {last} have bad text, and a run \
             skips them. With which micro-batch does step {after} begin?"
        ),
        |number| format!("micro-batch {number}"),
        next as f64,
        &[
            (
                (bad.start + 1) as f64,
                "That is the first bad one: a run that skips without drawing would learn from it now. A skipped step has to use up its data.",
            ),
            (
                (next - 1) as f64,
                "That is the last bad one. Micro-batches are counted from 1.",
            ),
            (
                (next + last - first + 1) as f64,
                "That is so under --policy one-batch: each skipped step throws away one micro-batch and counts nothing, so the data of \
                 all later steps move, and most of the bad text is learned after all.",
            ),
            (after as f64, "That is the number of the step. Each step before it has used up several micro-batches."),
        ],
        format!(
            "Skipped steps draw their data, too: {last} steps have used up {}. So every later step trains on the data that it would have had.",
            bad.end
        ),
    )
    .typed("", 0.0)
    .shown(format!("{next} to {}", bad.end + each)))
}

/// What is wrong with a job that takes no step at first, because its loss scale is too large.
fn first_line_of_a_log() -> Result<Question> {
    let gradient = 1e-3;
    // Of fp16.
    let largest = 65_504.0;
    let config = ScalerRule::Megatron.defaults();
    let mut scaler = LossScaler::new(config);
    let mut refused = 0;
    while gradient * scaler.scale() > largest {
        scaler.update(true)?;
        refused += 1;
    }
    ensure!(refused > 1, "the first iterations are refused");
    let log2 = |scale: f64| scale.log2().round();
    let first = format!(
        "Its first gradients are about {gradient}. Times 2^{} that is {}, and fp16 ends at {}.",
        log2(config.initial),
        thousands((gradient * config.initial) as u64),
        thousands(largest as u64)
    );
    Ok(Question::words(
        ["lab08", "The picture"],
        format!(
            "A job begins to train in fp16 under Megatron-LM. Its log says: iteration 1, learning rate 0, loss scale {}, number of skipped \
             iterations 1. What is wrong with it?",
            thousands(config.initial as u64)
        ),
        "nothing",
        &[
            (
                "the schedule: a learning rate of 0 trains nothing",
                "The schedule has not moved, because no step was taken. It moves with the first step that is.",
            ),
            (
                "the first batch: it should be skipped for good",
                "The gradients overflow by their scale, whatever the batch. Its next step draws other data and is refused as well.",
            ),
            (
                "the gradients: they explode, so the learning rate is too high",
                &first,
            ),
        ],
        format!(
            "The loss scale is being searched for, from 2^{} down. With gradients of {gradient} the first {refused} iterations are refused, \
             until 2^{} fits. A scale that still falls after hundreds of iterations would be an alarm.",
            log2(config.initial),
            log2(scaler.scale())
        ),
    )
    .on_page("loss-scale"))
}

/// What is left of updates that are smaller than half the distance between two numbers of bf16.
fn a_small_update() -> Result<Question> {
    let (start, update, steps) = (1.0_f32, 0.0015_f32, 200);
    let rounded = |x: f32| bf16::from_f32(x).to_f32();
    let kept = |add: fn(f32, f32) -> f32| (0..steps).fold(start, |weight, _| add(weight, update));
    let in_bf16 = kept(|weight, update| bf16::from_f32(weight + update).to_f32());
    let in_f32 = kept(|weight, update| weight + update);
    let next = |weight: f32| bf16::from_bits(bf16::from_f32(weight).to_bits() + 1).to_f32();
    let always_up = (0..steps).fold(start, |weight, _| next(weight));
    ensure!(in_bf16 == start, "an update of {update} moves a weight of {start}");
    Ok(Question::amount(
        ["lab08", "Why the master copy"],
        format!("A weight is {start}, in bf16. An optimizer adds {update} to it in each of {steps} steps. Where does it end?"),
        |weight| significant(weight, 4),
        in_bf16.into(),
        &[
            (
                in_f32.into(),
                "That is so in f32. Above 1 the numbers of bf16 are 1/128 apart, and after each step the weight is one of them.",
            ),
            (
                rounded(in_f32).into(),
                "That is an f32 copy, rounded when it is read. Here each step rounds, and the next one adds to what is left.",
            ),
            (
                always_up.into(),
                "That is so if each sum were rounded up. It is rounded to the nearest number.",
            ),
        ],
        format!(
            "The next number of bf16 is {}, and a sum of {} is nearer to {start}. So each step rounds its update away.",
            significant(next(start).into(), 5),
            start + update
        ),
    )
    .on_page("sixteen-bits"))
}

/// What a job loses to failures on more devices, at the best interval between saves.
fn more_devices() -> Result<Question> {
    let (save, between_failures) = (10.0_f64, 50_000.0_f64);
    let factor = 4.0;
    let best = |failures: f64| (2.0 * save * failures).sqrt();
    let lost =
        |interval: f64, failures: f64| 100.0 * (save / interval + interval / (2.0 * failures));
    let now = lost(best(between_failures), between_failures);
    let then = between_failures / factor;
    Ok(Question::amount(
        ["lab08", "How often to save?"],
        format!(
            "A job saves at the best interval, and loses {}% of its time to saves and failures. On {factor} times as many devices a save \
             takes as long as before. How much is lost at the best interval now?",
            significant(now, 2)
        ),
        |percent| format!("{}%", significant(percent, 2)),
        lost(best(then), then),
        &[
            (
                now,
                "Saving more often makes up for a part of the failures only: these saves take time, too.",
            ),
            (
                lost(best(between_failures), then),
                "That is at the old interval, where four times as many failures lose four times as much work.",
            ),
            (
                factor * now,
                "The work done twice is four times as much at the old interval, and the saves are not.",
            ),
        ],
        "The least loss grows as the root of how often machines fail, so it is twice as large, at half the interval.",
    )
    .on_page("checkpoints"))
}
