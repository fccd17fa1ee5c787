//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::{bytes_decimal, significant, thousands};
use kit::{Ask, Question};
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, three_weights];

/// How much a rank sends per step.
fn prediction() -> Result<Question> {
    let ranks = 2;
    let numbers = Args::parse_from(["lab02"]).train.resolve(ranks, "lab02")?.parameters();
    let bytes_each = size_of::<f32>();
    let sent = |collective, len: usize| -> Result<f64> {
        let task = Task::new(collective, Algorithm::Ring, ranks, len, bytes_each, 0)?;
        let sends = task.rounds(0).filter_map(|round| round.send);
        Ok((sends.map(|send| send.range.len()).sum::<usize>() * bytes_each) as f64)
    };
    let all_reduce = sent(Collective::AllReduce, numbers)?;
    let mb = 1e6;
    Ok(Question::amount(
        ["lab02", "The run"],
        format!(
            "{ranks} ranks train a model of {} parameters in f32. After each backward pass they average their gradients, by a ring \
             all-reduce. How many MB does each rank send per step?",
            thousands(numbers as u64)
        ),
        |size| bytes_decimal(size * mb),
        all_reduce / mb,
        &[
            (
                numbers as f64 / mb,
                "That is the number of gradients, in millions. Each of them has 4 bytes.",
            ),
            (
                sent(Collective::ReduceScatter, numbers / ranks)? / mb,
                "That is half of the way: each rank then has half of the sums, and sends them to the other as well.",
            ),
            (
                2.0 * all_reduce / mb,
                "That is all gradients twice. Each rank sends half of them to be added up, and then its half of the sums.",
            ),
        ],
        format!(
            "2(n-1)/n of the gradients' {}: once all of them for two ranks, and at most twice for any number.",
            bytes_decimal((numbers * bytes_each) as f64)
        ),
    )
    .typed(" MB", 0.02)
    .shown(format!("{} bytes per rank per step", thousands(all_reduce as u64))))
}

/// What has happened where ranks have three weights after a step.
fn three_weights() -> Result<Question> {
    let weight = 10.0;
    let lr = 0.1;
    let gradients = [2.0, 1.0, 6.0];
    // Each rank's weight after a step, if this is what the ranks do with their gradients.
    let after = |change: fn(&Comm, &mut [f32]) -> shardlab::comm::Result<()>| -> Result<String> {
        let weights = launch::run(gradients.len(), |comm| {
            let mut gradient = [gradients[comm.rank()]];
            change(&comm, &mut gradient)?;
            Ok(weight - lr * gradient[0])
        })?;
        let shown: Vec<String> =
            weights.iter().map(|weight| significant(f64::from(*weight), 2)).collect();
        Ok(shown.join(", "))
    };
    let seen = after(|_, _| Ok(()))?;
    let mean = after(|comm, gradient| comm.all_reduce(gradient, Reduce::Mean))?;
    let sum = after(|comm, gradient| comm.all_reduce(gradient, Reduce::Sum))?;
    let twice = after(|comm, gradient| {
        comm.all_reduce(gradient, Reduce::Mean)?;
        gradient[0] /= comm.size() as f32;
        Ok(())
    })?;
    Ok(Question::words(
        ["lab02", "Three lines"],
        format!(
            "A weight is {weight} on three ranks, and they train with data parallelism. After one step of SGD with a learning rate of {lr} \
             it is {seen}. The loss falls on every rank, and no rank reports an error. What has happened?"
        ),
        "nobody has averaged the gradients",
        &[
            (
                "the gradients were added up, and not averaged",
                &format!(
                    "Then all ranks would have taken the same step, three times too long: {sum}."
                ),
            ),
            (
                "the mean was divided by the number of ranks once more",
                &format!(
                    "Then all ranks would have taken the same step, a third as long: {twice}."
                ),
            ),
            (
                "nothing: each rank has its own part of the data",
                &format!(
                    "The data differ, and the step must not: after the average all ranks would have {mean}."
                ),
            ),
        ],
        format!(
            "Each rank has taken a step by its own gradient, and trains a model of its own. With the average all three would have {mean}. \
             Only a comparison of the ranks' weights shows it."
        ),
    ))
}
