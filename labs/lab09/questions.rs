//! What this lab asks before its run, and in the quiz.

use crate::apparatus::job;
use crate::flags::{Args, small};
use anyhow::{Result, ensure};
use clap::Parser;
use kit::show::{significant, thousands};
use kit::{Ask, Question};
use shardlab::data::{Corpus, Sampling};
use shardlab::difference::largest_relative_difference;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::partition::{Flat, FlatGroup};
use shardlab::train::{Config, Training};
use std::ops::Range;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, whose_slices];

/// How far the losses of three ranks are from those of the four that saved.
fn prediction() -> Result<Question> {
    let sequences = 12;
    let steps = 4;
    let corpus = Corpus::find(None)?;
    let mut args = Args::parse_from(["lab09"]);
    args.train.data.batch = Some(1);
    small(&mut args.train.model);
    let base = args.train.resolve(1, Some(steps), &corpus)?;
    let base = Config { sampling: Sampling::Global, ..base };
    let losses = |strategy: &str| -> Result<Vec<f64>> {
        let strategy: Strategy = strategy.parse()?;
        let config = job::config(&strategy, &base, sequences);
        let all = launch::run(strategy.ranks(), |comm| {
            let mut training = Training::new(&config, &strategy, &comm)?;
            let mut losses = Vec::new();
            for step in 0..steps {
                losses.push(training.step(&corpus.train, step)?.loss);
            }
            Ok(losses)
        })?;
        // A rank's loss is that of its own sequences, and all ranks have equally many.
        let mean = |step: usize| all.iter().map(|rank| rank[step]).sum::<f64>() / all.len() as f64;
        Ok((0..steps).map(mean).collect())
    };
    let (four, three) = (losses("dp=4,zero=1")?, losses("dp=3,zero=3")?);
    let apart = largest_relative_difference(&four, &three);
    ensure!(apart > 0.0 && apart < 1e-5, "the ranks train other models: {apart}");
    Ok(Question::words(
        ["lab09", "The run"],
        "A job on four ranks is saved, and goes on. The same checkpoint is loaded on three ranks, which take the same sequences in each \
         step. How far are their losses from the four ranks'?",
        "off in the last digits of a float",
        &[
            (
                "not at all: they have the same bits",
                "That is so for four ranks that resume, and for the parameters just after loading. Three ranks add up the gradients in a \
                 different order, and each sum rounds.",
            ),
            (
                "off by some percent, until the run has recovered",
                "That is so if the optimizer's moments are not saved or not put together: then Adam begins anew.",
            ),
            (
                "there are none: a checkpoint of four ranks needs four",
                "That is so for the ranks' own files, with slices for four. Put together, each parameter is whole, and anyone can cut it \
                 anew.",
            ),
        ],
        format!(
            "The same parameters and moments, the same data, another order of adding: in {steps} steps of a small job they come to differ \
             by {}.",
            significant(apart, 2)
        ),
    )
    .shown("and the last digits can differ"))
}

/// Whose old slices a rank needs, if there are fewer ranks than before.
fn whose_slices() -> Result<Question> {
    let numbers = 1200;
    let (before, now) = (4, 3);
    let asked = 1;
    let flat = |ranks| Flat { numel: numbers, ranks };
    let saved = FlatGroup { start: 0, flat: flat(before), expert: false };
    let named = |mut ranks: Vec<usize>| {
        let last = ranks.pop().map_or(String::new(), |rank| rank.to_string());
        let others: Vec<String> = ranks.iter().map(usize::to_string).collect();
        match others.len() {
            0 => format!("rank {last}"),
            _ => format!("ranks {} and {last}", others.join(", ")),
        }
    };
    let span = |held: Range<usize>| format!("numbers {} to {}", held.start, held.end - 1);
    let had = saved.owners(flat(now).range(asked));
    let had: Vec<String> = had
        .map(|(owner, _)| format!("old rank {owner} had {}", span(saved.range(owner))))
        .collect();
    let owners = |rank| saved.owners(flat(now).range(rank)).map(|(owner, _)| owner).collect();
    Ok(Question::words(
        ["lab09", "The idea"],
        format!(
            "{before} ranks have saved the optimizer's state of {} parameters in equal slices. Today there are {now} ranks, with \
             equal slices again. Whose old slices does rank {asked} need?",
            thousands(numbers as u64)
        ),
        named(owners(asked)),
        &[
            (
                named(vec![asked]),
                "Its number is the same, and its slice is not: it is longer, and begins later.",
            ),
            (named(owners(asked - 1)), "Those are the slices that rank 0 needs."),
            (
                named((0..before).collect()),
                "That works, and reads all of the state on each rank. Most of it is not needed.",
            ),
        ],
        format!("Rank {asked} has {} now; {}.", span(flat(now).range(asked)), had.join(" and ")),
    ))
}
