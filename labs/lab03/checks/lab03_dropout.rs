//! The check of lab03-dropout: it compares with a loop in which nothing has a mode.

use exercise::{History, train};
use kit::check::{Evidence, is_near, number, run};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Corpus;
use shardlab::difference::largest_difference;
use shardlab::model::{Gpt, Pass};
use shardlab::train::{AdamW, Config, clip_scale, global_norm};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("1 rank: it trains and evaluates right", |evidence| {
            whole(evidence, 1)
        }),
        ("3 ranks: they hold the same model at the end", same_model),
        (
            "3 ranks: evaluations every 3 steps, without dropout",
            evaluations,
        ),
        ("3 ranks: the losses of the first step", dropout),
        (
            "3 ranks: 12 steps and 4 evaluations are right",
            |evidence| whole(evidence, 3),
        ),
    ])
}

/// Steps from one evaluation to the next, and batches in each evaluation. Both are as in the exercise.
const INTERVAL: usize = 3;
const BATCHES: usize = 4;

/// One rank's result of a training: its history, and the weights.
struct Trained {
    history: History,
    weights: Vec<f32>,
}

/// All ranks' trainings: by the reader's code, by the reference, and by the reference without dropout.
struct Trainings {
    yours: Vec<Trained>,
    right: Vec<Trained>,
    without: Vec<Trained>,
}

fn trainings(ranks: usize) -> Result<Trainings> {
    let corpus = Corpus::embedded()?;
    let config = Config {
        dropout: 0.2,
        ..Config::small(ranks, &corpus)
    };
    let all = |config: &Config, train: fn(&Comm, &Gpt, &Config, &Corpus) -> Result<History>| {
        launch::run(ranks, |comm| {
            let gpt = Gpt::new(&config.shape)?;
            gpt.params.allocate(config.seed);
            let history = train(&comm, &gpt, config, &corpus)?;
            let weights = gpt.params.values().clone();
            Ok(Trained { history, weights })
        })
    };
    Ok(Trainings {
        yours: all(&config, train)?,
        right: all(&config, reference)?,
        without: all(
            &Config {
                dropout: 0.0,
                ..config.clone()
            },
            reference,
        )?,
    })
}

fn reference(comm: &Comm, gpt: &Gpt, config: &Config, corpus: &Corpus) -> Result<History> {
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let sampler = config.sampler(comm.rank());
    let mut history = History::default();
    for step in 0..config.steps {
        if step.is_multiple_of(INTERVAL) {
            let loss = |i| -> Result<f64> {
                let batch = config.sampler(0).evaluation_batch(&corpus.validation, i);
                Ok(f64::from(
                    gpt.loss(&batch, &Pass::evaluate())?.to_scalar::<f32>()?,
                ))
            };
            let sum: f64 = (0..BATCHES).map(loss).sum::<Result<f64>>()?;
            history.evaluations.push(sum / BATCHES as f64);
        }
        let batch = sampler.batch(&corpus.train, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
        let norm = global_norm(&gpt.params.gradients());
        adamw.step(
            &gpt.params,
            config.schedule.at(step),
            clip_scale(norm, config.clip)?,
        )?;
        history.losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    Ok(history)
}

fn same_model(evidence: &mut Evidence) -> Result<()> {
    let Trainings { yours, .. } = trainings(3)?;
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
    let Trainings { yours, right, .. } = trainings(3)?;
    let got = &yours[0].history.evaluations;
    let expected = &right[0].history.evaluations;
    evidence.same(
        "evaluations of rank 0 in 12 steps, one every 3",
        expected.len(),
        got.len(),
    );
    // Later evaluations depend on the steps before them.
    evidence.near(
        "step 0: loss on the validation text",
        expected[0],
        got.first().copied().unwrap_or(f64::NAN),
    );
    evidence.means_if(
        got.is_empty(),
        "Without evaluations you cannot see that the model overfits.",
    );
    evidence.means(
        "Evaluated with dropout, a model looks worse than it is, and you cannot compare its losses with others.",
    );
    Ok(())
}

fn dropout(evidence: &mut Evidence) -> Result<()> {
    let Trainings {
        yours,
        right,
        without,
    } = trainings(3)?;
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
             all of them hold the same model, and no comparison of weights finds the mistake. But only rank 0 trains \
             with dropout.",
            plain.join(" and ")
        ),
    );
    evidence.means("With one rank this loss is right. What is different on the other ranks?");
    Ok(())
}

fn whole(evidence: &mut Evidence, ranks: usize) -> Result<()> {
    let Trainings {
        yours,
        right,
        without,
    } = trainings(ranks)?;
    let got = &yours[0].history;
    let expected = &right[0].history;
    let at = |numbers: &[f64], i: usize| numbers.get(i).copied().unwrap_or(f64::NAN);
    for i in 0..expected.evaluations.len() {
        let expected = expected.evaluations[i];
        let got = at(&got.evaluations, i);
        evidence.near(
            format!("step {}: loss on the validation text", 3 * i),
            expected,
            got,
        );
    }
    for (rank, (got, expected)) in yours.iter().zip(&right).enumerate() {
        let wrong = (0..12)
            .find(|&step| !is_near(expected.history.losses[step], at(&got.history.losses, step)));
        let step = wrong.unwrap_or(11);
        let expected = expected.history.losses[step];
        let got = at(&got.history.losses, step);
        evidence.near(
            format!("rank {rank}, step {step}: loss of its batch"),
            expected,
            got,
        );
    }
    let largest = largest_difference(&yours[0].weights, &right[0].weights);
    evidence.row(
        largest == 0.0,
        "weights after 12 steps: largest difference",
        0,
        number(largest),
    );

    let dropped =
        at(&got.evaluations, 0) != at(&expected.evaluations, 0) && !got.evaluations.is_empty();
    evidence.means_if(
        dropped,
        "The model is evaluated with dropout, and looks worse than it is.",
    );
    let never = is_near(without[0].history.losses[0], at(&got.losses, 0));
    evidence.means_if(
        never,
        "The model trains without dropout. Then all ranks are alike, but the model overfits.",
    );
    evidence.means_if(
        ranks > 1,
        "The first step is right, and a later step is not. There is an evaluation every 3 steps. What does it leave behind \
         on the ranks that do not evaluate?",
    );
    evidence.means(
        "With one rank the exercise was right before, so your code has changed something else.",
    );
    Ok(())
}
