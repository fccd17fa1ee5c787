//! The check of lab03-dropout: it compares with a loop in which nothing has a mode.

use exercise::{History, train};
use kit::check::{Evidence, is_near, number, run};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::{Batch, Corpus};
use shardlab::difference::largest_difference;
use shardlab::model::{Gpt, Pass};
use shardlab::train::{AdamW, Config, clip_scale, global_norm};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: it trains and evaluates right", |evidence| whole(evidence, 1)),
        ("3 ranks: they hold the same model at the end", same_model),
        ("3 ranks: evaluations every 3 steps, without dropout", evaluations),
        ("3 ranks: the losses of the first step", dropout),
        ("3 ranks: 12 steps and 4 evaluations are right", |evidence| whole(evidence, 3)),
        ("with another number of validation batches", another_number),
    ])
}

/// Steps from one evaluation to the next, as in the exercise, and batches in each evaluation.
const INTERVAL: usize = 3;
const BATCHES: usize = 4;

/// One rank's result of a training: its history, and the weights.
struct Trained {
    history: History,
    weights: Vec<f32>,
}

/// All ranks' trainings: by the reader's code, by the reference, and by the reference without
/// dropout.
struct Trainings {
    yours: Vec<Trained>,
    right: Vec<Trained>,
    without: Vec<Trained>,
}

/// The exercise's function.
type Train = fn(&Comm, &Gpt, &Config, &Corpus, &[Batch]) -> Result<History>;

fn config(ranks: usize, corpus: &Corpus) -> Config {
    Config { dropout: 0.2, ..Config::small(ranks, corpus) }
}

/// The first batches of the validation text.
fn validation(config: &Config, corpus: &Corpus, batches: usize) -> Vec<Batch> {
    (0..batches)
        .map(|i| config.sampler(0).evaluation_batch(&corpus.validation, i))
        .collect()
}

fn trainings(ranks: usize, batches: usize) -> Result<Trainings> {
    let corpus = Corpus::embedded()?;
    let config = config(ranks, &corpus);
    let validation = validation(&config, &corpus, batches);
    let all = |config: &Config, train: Train| {
        launch::run(ranks, |comm| {
            let gpt = Gpt::new(&config.shape)?;
            gpt.params.allocate(config.seed);
            let history = train(&comm, &gpt, config, &corpus, &validation)?;
            let weights = gpt.params.values().clone();
            Ok(Trained { history, weights })
        })
    };
    Ok(Trainings {
        yours: all(&config, train)?,
        right: all(&config, reference)?,
        without: all(&Config { dropout: 0.0, ..config.clone() }, reference)?,
    })
}

/// The mean loss of some batches, in passes that `pass` makes.
fn mean(gpt: &Gpt, batches: &[Batch], pass: impl Fn(&Batch) -> Pass) -> Result<f64> {
    let loss = |batch: &Batch| -> Result<f64> {
        Ok(f64::from(gpt.loss(batch, &pass(batch))?.to_scalar::<f32>()?))
    };
    Ok(batches.iter().map(loss).sum::<Result<f64>>()? / batches.len() as f64)
}

fn reference(
    comm: &Comm,
    gpt: &Gpt,
    config: &Config,
    corpus: &Corpus,
    validation: &[Batch],
) -> Result<History> {
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let sampler = config.sampler(comm.rank());
    let mut history = History::default();
    for step in 0..config.steps {
        if step.is_multiple_of(INTERVAL) && !validation.is_empty() {
            history.evaluations.push(mean(gpt, validation, |_| Pass::evaluate())?);
        }
        let batch = sampler.batch(&corpus.train, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
        let norm = global_norm(&gpt.params.gradients());
        adamw.step(&gpt.params, config.schedule.at(step), clip_scale(norm, config.clip)?)?;
        history.losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    Ok(history)
}

fn same_model(evidence: &mut Evidence) -> Result<()> {
    let Trainings { yours, .. } = trainings(3, BATCHES)?;
    for (rank, trained) in yours.iter().enumerate() {
        let got = largest_difference(&trained.weights, &yours[0].weights);
        evidence.row(
            got == 0.0,
            format!("rank {rank}: largest difference from rank 0"),
            0,
            number(got),
        );
    }
    evidence
        .means("The gradients are no longer averaged over all ranks, or the ranks do not start from rank 0's weights.");
    Ok(())
}

fn evaluations(evidence: &mut Evidence) -> Result<()> {
    let Trainings { yours, right, .. } = trainings(3, BATCHES)?;
    let got = &yours[0].history.evaluations;
    let expected = &right[0].history.evaluations;
    // Later evaluations depend on the steps before them.
    compare_evaluations(evidence, &expected[..1], got, expected.len());
    explain_evaluations(evidence, got, expected)
}

/// Compares the losses of rank 0's evaluations, if there are `all` of them.
fn compare_evaluations(evidence: &mut Evidence, expected: &[f64], got: &[f64], all: usize) {
    let what = format!("evaluations of rank 0 in 12 steps, one every {INTERVAL}");
    if !evidence.same(what, all, got.len()) {
        return;
    }
    for (i, (expected, got)) in expected.iter().zip(got).enumerate() {
        evidence.near(
            format!("step {}: loss on the validation text", INTERVAL * i),
            *expected,
            *got,
        );
    }
}

/// Explains why a run has too few evaluations, or a wrong first one.
fn explain_evaluations(evidence: &mut Evidence, got: &[f64], expected: &[f64]) -> Result<()> {
    evidence
        .means_if(got.is_empty(), "Without evaluations you cannot see that the model overfits.");
    evidence.means_if(
        got.len() != expected.len(),
        format!(
            "There are {} evaluations, and {} were asked for: one every {INTERVAL} steps, and the first before any training. Otherwise \
             this curve cannot be laid over that of an earlier run.",
            got.len(),
            expected.len(),
        ),
    );
    let Some(&first) = got.first() else {
        return Ok(());
    };
    if is_near(expected[0], first) {
        return Ok(());
    }
    // The evaluation of step 0 sees the weights with which all ranks begin.
    let corpus = Corpus::embedded()?;
    let config = config(1, &corpus);
    let batches = validation(&config, &corpus, BATCHES);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let dropped = mean(&gpt, &batches, |batch| config.pass(0, &batch.sequences))?;
    evidence.means_if(
        is_near(dropped, first),
        "The model is evaluated with dropout. So it looks worse than it is, and its losses cannot be compared with those of others.",
    );
    for few in 1..BATCHES {
        evidence.means_if(
            is_near(mean(&gpt, &batches[..few], |_| Pass::evaluate())?, first),
            format!(
                "This is the loss of {few} of the {BATCHES} validation batches. The fewer they are, the more the curve jumps, and \
                 a run on other ranks cannot be compared with this one."
            ),
        );
    }
    evidence.means_if(
        is_near(expected[0] * BATCHES as f64, first),
        format!("This is the sum over the {BATCHES} validation batches, and not their mean."),
    );
    evidence.means(
        "This is not the loss of the model with which all ranks begin. Is it evaluated before the step's training, and on all \
         validation batches?",
    );
    Ok(())
}

/// Nothing to evaluate with, on any rank.
fn another_number(evidence: &mut Evidence) -> Result<()> {
    let Trainings { yours, right, without } = trainings(3, 0)?;
    let first = |trained: &Trained| trained.history.losses.first().copied().unwrap_or(f64::NAN);
    for rank in 0..3 {
        evidence.near(
            format!("0 batches, rank {rank}, step 0: loss"),
            first(&right[rank]),
            first(&yours[rank]),
        );
    }
    let evaluations = yours[0].history.evaluations.len();
    evidence.same("0 batches: evaluations of rank 0", 0, evaluations);
    let plain = (0..3).filter(|&rank| is_near(first(&without[rank]), first(&yours[rank])));
    evidence.means_if(
        plain.count() > 0,
        format!(
            "With {BATCHES} validation batches all ranks train with dropout. With none, they train without it again: your change \
             goes around the mistake, and the next one who calls `evaluate` meets it."
        ),
    );
    evidence.means_if(
        evaluations > 0,
        "Of no batches there is no loss, and a curve of invented numbers is worse than none.",
    );
    evidence.means(format!(
        "With {BATCHES} validation batches the run was right, and without any it is not."
    ));
    Ok(())
}

fn dropout(evidence: &mut Evidence) -> Result<()> {
    let Trainings { yours, right, without } = trainings(3, BATCHES)?;
    let first = |trained: &Trained| trained.history.losses.first().copied().unwrap_or(f64::NAN);
    for rank in 0..3 {
        evidence.near(
            format!("rank {rank}, step 0: loss of its batch"),
            first(&right[rank]),
            first(&yours[rank]),
        );
    }
    let plain: Vec<String> = (0..3)
        .filter(|&rank| is_near(first(&without[rank]), first(&yours[rank])))
        .map(|rank| rank.to_string())
        .collect();
    evidence.means_if(
        !plain.is_empty(),
        format!(
            "Without dropout on rank {}: this is the loss of a model that drops nothing. The ranks average their gradients, so \
             all of them hold the same model, and no comparison of weights finds the mistake. But they overfit together. \
             What happens on these ranks before their first batch, and not on the others?",
            plain.join(" and ")
        ),
    );
    evidence.means("With one rank this loss is right. What is different on the other ranks?");
    Ok(())
}

fn whole(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let Trainings { yours, right, without } = trainings(ranks, BATCHES)?;
    let got = &yours[0].history;
    let expected = &right[0].history;
    let at = |numbers: &[f64], i: usize| numbers.get(i).copied().unwrap_or(f64::NAN);
    compare_evaluations(
        evidence,
        &expected.evaluations,
        &got.evaluations,
        expected.evaluations.len(),
    );
    for (rank, (got, expected)) in yours.iter().zip(&right).enumerate() {
        let wrong = (0..12)
            .find(|&step| !is_near(expected.history.losses[step], at(&got.history.losses, step)));
        let step = wrong.unwrap_or(11);
        let expected = expected.history.losses[step];
        let got = at(&got.history.losses, step);
        evidence.near(format!("rank {rank}, step {step}: loss of its batch"), expected, got);
    }
    let largest = largest_difference(&yours[0].weights, &right[0].weights);
    evidence.row(largest == 0.0, "weights after 12 steps: largest difference", 0, number(largest));

    explain_evaluations(evidence, &got.evaluations, &expected.evaluations)?;
    let never = is_near(without[0].history.losses[0], at(&got.losses, 0));
    evidence.means_if(
        never,
        "The model trains without dropout. Then all ranks are alike, but the model overfits.",
    );
    evidence.means_if(
        ranks > 1,
        "The first step is right, and a later step is not. There is an evaluation every 3 steps. What does it leave changed \
         on the ranks that do not evaluate?",
    );
    evidence.means(
        "With one rank the exercise was right before, so your code has changed something else.",
    );
    Ok(())
}
