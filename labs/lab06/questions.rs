//! What this lab asks before its run, and in the quiz.

use anyhow::Result;
use kit::show::percent;
use kit::{Ask, Question};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Simulated, Times, simulate};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, alive];

/// How long a rank of a pipeline waits.
fn prediction() -> Result<Question> {
    let stages = 4;
    let micro_batches = 8;
    let step = |ranks: usize, micro_batches: usize| -> Result<Simulated> {
        let pipeline = Pipeline { ranks, chunks: 1, micro_batches };
        let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
        let orders = Schedule::OneForwardOneBackward.orders(&pipeline)?;
        Ok(simulate(&pipeline, &orders, &times)?)
    };
    let right = step(stages, micro_batches)?;
    let in_percent = |part: f64| 100.0 * part;
    Ok(Question::amount(
        ["lab06", "The run"],
        format!(
            "{stages} ranks each hold a quarter of a model's layers, and {micro_batches} micro-batches go through them, forward and \
             backward. A backward pass takes twice as long as a forward pass. How many percent of the step does a rank wait?"
        ),
        |part| percent(part / 100.0),
        in_percent(right.bubble()),
        &[
            (
                in_percent(right.bubble_to_work()),
                "That is the waiting in proportion to the work, as some papers count. The step has both, so of it the part is less.",
            ),
            (
                in_percent(step(stages + 1, micro_batches)?.bubble()),
                "That is so for five ranks. A rank waits for the three others, and not for itself.",
            ),
            (
                in_percent(step(stages, 1)?.bubble()),
                "That is so with one micro-batch. With eight, ranks work on different ones at the same time.",
            ),
            (
                in_percent(step(stages, 2 * micro_batches)?.bubble()),
                "That is so with sixteen micro-batches: twice as many make the bubble about half as large.",
            ),
            (0.0, "Before the first micro-batch reaches the last rank, that rank has nothing to do."),
        ],
        format!(
            "A rank waits for {0} others, at the beginning or at the end, as long as {0} micro-batches would take: {0} of \
             {micro_batches} + {0}.",
            stages - 1
        ),
    )
    .typed(" %", 0.02)
    .shown(format!("{} of it bubble", percent(right.bubble()))))
}

/// What 1F1B is for.
fn alive() -> Result<Question> {
    let pipeline = Pipeline { ranks: 4, chunks: 1, micro_batches: 12 };
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
    let peaks = |schedule: Schedule| -> Result<Vec<usize>> {
        Ok(simulate(&pipeline, &schedule.orders(&pipeline)?, &times)?.peaks)
    };
    let one = peaks(Schedule::OneForwardOneBackward)?;
    let Pipeline { ranks, micro_batches, .. } = pipeline;
    Ok(Question::amount(
        ["lab06", "The order sets the memory"],
        format!(
            "{ranks} ranks, {micro_batches} micro-batches, 1F1B. Of how many micro-batches does the first rank keep activations at the most?"
        ),
        |number| number.to_string(),
        one[0] as f64,
        &[
            (
                peaks(Schedule::GPipe)?[0] as f64,
                "That is GPipe, which runs all forward passes first. Under 1F1B each backward pass frees what the next forward pass takes.",
            ),
            (
                one[ranks - 1] as f64,
                "That is the last rank, whose backward pass follows at once. The first waits until its micro-batch has been through all ranks.",
            ),
            (
                (micro_batches / ranks) as f64,
                "The micro-batches are not shared: all of them go through every rank.",
            ),
        ],
        "It sends one micro-batch on for each rank behind it before the first gradient comes back, and never more: more micro-batches cost no \
         memory.",
    ))
}
