//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use anyhow::{Result, ensure};
use clap::Parser;
use kit::show::significant;
use kit::{Ask, Question, parity};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::difference::same_bits;
use shardlab::launch;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::plan::exposed;
use shardlab::train::{Config, Training};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, exposed_time, critical_batch];

/// How far two ranks' losses are from those of one rank that does the work of both.
fn prediction() -> Result<Question> {
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
                "they are equal up to rounding, in the last digits",
                "That is so where the order differs: (x+y)+z is not x+(y+z). From three processes on, an MPI library chooses its own order.",
            ),
            (
                "they differ by a few percent: the ranks see other data",
                "That is so for two random seeds. Here the one rank takes the very batches of both.",
            ),
            (
                "the ranks' are higher: each of them sees half of the data",
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

/// How long a rank waits for its buckets after the backward pass.
fn exposed_time() -> Result<Question> {
    let pass = 100.0;
    let each = 40.0;
    let buckets = 4;
    let bucket = |i: usize| ((i + 1) as f64 / buckets as f64, each);
    let all = || (0..buckets).map(bucket);
    let on_the_link: f64 = all().map(|(_, ms)| ms).sum();
    Ok(Question::amount(
        ["lab03", "The formula"],
        format!(
            "A backward pass takes {pass} ms. Its gradients are averaged in {buckets} buckets, which are complete after a quarter, a \
             half, three quarters and all of the pass. The link needs {each} ms for each bucket. How long does a rank wait after \
             its backward pass?"
        ),
        |ms| format!("{ms} ms"),
        exposed(pass, all()),
        &[
            (
                exposed(pass, [(1.0, on_the_link)]),
                "That is all of the averaging, as if it began after the backward pass. The first bucket is complete before.",
            ),
            (
                exposed(pass, [(0.0, on_the_link)]),
                "For that the link would have to begin with the pass. Its first bucket is complete after a quarter.",
            ),
            (
                exposed(pass, [bucket(buckets - 1)]),
                "That is only the last bucket. When it is complete, the link still carries buckets from before.",
            ),
        ],
        format!(
            "From the first bucket on, after {} ms, the link never stops: it ends {buckets} buckets of {each} ms later, at {} ms.",
            pass * bucket(0).0,
            pass * bucket(0).0 + on_the_link
        ),
    )
    .on_page("overlap"))
}

/// From which batch size on the noise is smaller than the gradient.
fn critical_batch() -> Result<Question> {
    let (samples, variance) = (32.0_f64, 0.5_f64);
    Ok(Question::amount(
        ["lab03", "How large is too large?"],
        format!(
            "A gradient of {samples} samples has a variance of {variance}, in units of its squared length. What is this model's critical \
             batch size?"
        ),
        |samples| format!("{} samples", significant(samples, 2)),
        samples * variance,
        &[
            (
                samples / variance,
                "There the variance is 0.25. More samples have less noise, and asked is where it is as large as the gradient.",
            ),
            (
                samples * variance.sqrt(),
                "That would be so if the noise's length fell like the batch grows. Its square does.",
            ),
            (samples, "There the noise is already smaller than the gradient: its variance is a half."),
        ],
        "The variance falls as the batch grows: one sample has 32 times 0.5, and 16 samples have 1.",
    )
    .on_page("large-batches"))
}
