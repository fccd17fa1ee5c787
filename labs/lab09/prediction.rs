//! What a reader predicts before the run.

use crate::apparatus::job;
use crate::flags::{Args, small};
use anyhow::{Result, ensure};
use clap::Parser;
use kit::Question;
use kit::show::significant;
use shardlab::data::{Corpus, Sampling};
use shardlab::difference::largest_relative_difference;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Training};

/// How far the losses of three ranks are from those of the four that saved.
///
/// # Errors
/// If the library refuses to train.
pub fn prediction() -> Result<Question> {
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
                "not at all: they have the same bits".into(),
                "That is so for four ranks that resume, and for the parameters just after loading. Three ranks add up the gradients in a \
                 different order, and each sum rounds.",
            ),
            (
                "off by some percent, until the run has recovered".into(),
                "That is so if the optimizer's moments are not saved or not put together: then Adam begins anew.",
            ),
            (
                "there are none: a checkpoint of four ranks needs four".into(),
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
