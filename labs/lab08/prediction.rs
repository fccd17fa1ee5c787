//! What a reader predicts before the run.

use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::Question;
use shardlab::data::Corpus;

/// Which data the first step after skipped ones learns from.
///
/// # Errors
/// If the text cannot be read.
pub fn prediction() -> Result<Question> {
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
