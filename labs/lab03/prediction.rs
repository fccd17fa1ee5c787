//! What a reader predicts before the run.

use crate::flags::Args;
use anyhow::{Result, ensure};
use clap::Parser;
use kit::Question;
use kit::parity;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::difference::same_bits;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::train::{Config, Training};

/// How far two ranks' losses are from those of one rank that does the work of both.
///
/// # Errors
/// If the library refuses to train.
pub fn prediction() -> Result<Question> {
    let steps = 3;
    let ranks = 2;
    let corpus = Corpus::find(None)?;
    let text = &corpus.train[..];
    let train = Args::parse_from(["lab03"]).train;
    let config = train.resolve(ranks, Some(steps), &corpus)?.parity_check();
    let both = launch::run(ranks, |comm| {
        let strategy = Strategy::data(ranks, Stage::Ddp);
        parity::parallel(Training::new(&config, &strategy, &comm)?, text, steps)
    })?;
    let one = Config { ranks: 1, ..config.clone() };
    let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let in_their_order = parity::serial(alone, &config, text, steps)?.losses;
    // A rank's own losses are of its own batches.
    let mean = |step: usize| both.iter().map(|rank| rank.losses[step]).sum::<f64>() / ranks as f64;
    let losses: Vec<f64> = (0..steps).map(mean).collect();
    ensure!(same_bits(&losses, &in_their_order), "the ranks train another model");
    Ok(Question::words(
        ["lab03", "The run"],
        format!(
            "{ranks} ranks take {steps} steps with data parallelism. Then one rank takes the batches of both in each step, one after the \
             other, and adds up in the ranks' order. How do the losses compare?"
        ),
        "they have the same bits",
        &[
            (
                "they are equal up to rounding, in the last digits".into(),
                "That is so where the order differs: (x+y)+z is not x+(y+z). From three processes on, an MPI library chooses its own order.",
            ),
            (
                "they differ by a few percent: the ranks see other data".into(),
                "That is so for two random seeds. Here the one rank takes the very batches of both.",
            ),
            (
                "the ranks' are higher: each of them sees half of the data".into(),
                "That is so without the average. With it each rank's step is made of both halves.",
            ),
        ],
        "The ranks and the one rank compute the same mean of the same gradients in the same order, so they take the same steps.",
    )
    .shown("bitwise equal")
    .with_flags(ON_A_PAGE))
}

/// About a minute on two workers of a browser, and a text at its end.
const ON_A_PAGE: &str = "--layers 2 --embd 64 --lr 0.008 --min-lr 0.0005 --steps 1200 --eval-interval 600 --log-interval 20";
