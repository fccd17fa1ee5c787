//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use crate::skipping::{LossScaler, ScalerRule};
use anyhow::{Result, ensure};
use clap::Parser;
use kit::show::thousands;
use kit::{Ask, Question};
use shardlab::data::Corpus;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, first_line_of_a_log];

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
