//! The check of lab03-accum: against a loop that adds up the micro-batches' gradients, and divides
//! once.

use exercise::{Logged, train};
use kit::check::{Evidence, is_near, run_knowing};
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Corpus;
use shardlab::difference::largest_difference;
use shardlab::model::Gpt;
use shardlab::train::{AdamW, AdamWConfig, Config, LrSchedule, clip_scale, global_norm};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run_knowing(
        include_str!("lab03_accum.mistakes.toml"),
        &[
            ("1 micro-step: trains what the whole batch trains", |evidence| {
                weights(evidence, 2, 1)
            }),
            ("4 micro-steps: the log has the mean loss", |evidence| losses(evidence, 2, 4)),
            ("4 micro-steps: the gradient of the whole batch", |evidence| {
                gradients(evidence, 2, 4)
            }),
            ("2 micro-steps on 3 ranks: the gradient", |evidence| gradients(evidence, 3, 2)),
            ("8 micro-steps on 1 rank: the gradient", |evidence| gradients(evidence, 1, 8)),
            ("12 steps of 4 micro-steps: the weights", |evidence| weights(evidence, 2, 4)),
        ],
    )
}

/// The log and the weights after a training.
struct Trained {
    log: Vec<Logged>,
    weights: Vec<f32>,
}

/// Every rank's training by the reader's code, and by the reference.
fn both(ranks: usize, micro_steps: usize) -> Result<Vec<(Trained, Trained)>> {
    both_with(ranks, |corpus| Config {
        grad_accum: micro_steps,
        // Norms are about 1, so most gradients are clipped.
        clip: 0.5,
        ..Config::small(ranks, corpus)
    })
}

/// A learning rate and an epsilon with which a step is as long as its gradient.
const LARGE: f64 = 1e3;

/// How long the gradient is that rank 0's optimizer applies in the first step, if the right one has
/// length 1. With a large epsilon and no clipping, AdamW moves each weight by its gradient; with a
/// small one only by the learning rate.
fn applied(ranks: usize, micro_steps: usize) -> Result<f64> {
    Ok(reach(ranks, micro_steps, LARGE)? / reach(ranks, micro_steps, 1e-8)?)
}

/// How far that step goes, if the right distance is 1.
fn reach(ranks: usize, micro_steps: usize, epsilon: f64) -> Result<f64> {
    let config = |corpus: &Corpus| {
        let small = Config::small(ranks, corpus);
        Config {
            grad_accum: micro_steps,
            clip: 0.0,
            steps: 1,
            schedule: LrSchedule { lr: LARGE, min_lr: LARGE, warmup: 0, ..small.schedule },
            adamw: AdamWConfig { epsilon, weight_decay: 0.0, ..small.adamw },
            ..small
        }
    };
    let trained = both_with(ranks, config)?;
    let corpus = Corpus::embedded()?;
    let config = config(&corpus);
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let first = gpt.params.values();
    let moved = |weights: &[f32]| -> f64 {
        let steps = weights.iter().zip(first.iter());
        let squares = steps.map(|(new, old)| f64::from(new - old).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let (yours, right) = &trained[0];
    Ok(moved(&yours.weights) / moved(&right.weights))
}

fn both_with(ranks: usize, config: impl Fn(&Corpus) -> Config) -> Result<Vec<(Trained, Trained)>> {
    let corpus = Corpus::embedded()?;
    let config = config(&corpus);
    launch::run(ranks, |comm| {
        let with =
            |train: fn(&Comm, &Gpt, &Config, &Corpus) -> Result<Vec<Logged>>| -> Result<Trained> {
                let gpt = Gpt::new(&config.shape)?;
                gpt.params.allocate(config.seed);
                let log = train(&comm, &gpt, &config, &corpus)?;
                let weights = gpt.params.values().clone();
                Ok(Trained { log, weights })
            };
        Ok((with(train)?, with(reference)?))
    })
}

fn reference(comm: &Comm, gpt: &Gpt, config: &Config, corpus: &Corpus) -> Result<Vec<Logged>> {
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut log = Vec::new();
    for step in 0..config.steps {
        gpt.params.zero_gradients();
        let mut mean = 0.0;
        for micro in 0..config.grad_accum {
            let batch = config.sampler(comm.rank()).batch(&corpus.train, step, micro);
            let loss = (gpt.loss(&batch, &config.pass(step, &batch.sequences))?
                / config.grad_accum as f64)?;
            mean += f64::from(loss.to_scalar::<f32>()?);
            loss.backward()?;
        }
        comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
        let grad_norm = global_norm(&gpt.params.gradients());
        adamw.step(&gpt.params, config.schedule.at(step), clip_scale(grad_norm, config.clip)?)?;
        log.push(Logged { loss: mean, grad_norm });
    }
    Ok(log)
}

fn losses(evidence: &mut Evidence, ranks: usize, micro_steps: usize) -> Result<()> {
    let trained = both(ranks, micro_steps)?;
    // Later losses depend on the steps before them.
    for (rank, (yours, right)) in trained.iter().enumerate() {
        let got = yours.log.first().map_or(f64::NAN, |logged| logged.loss);
        evidence.near(format!("rank {rank}, step 0: loss"), right.log[0].loss, got);
    }
    evidence.known(&[factor(&trained[0], |logged| logged.loss)]);
    evidence.means(
        "The log must show the mean loss of the rank's sequences, whatever the gradients are.",
    );
    Ok(())
}

fn gradients(evidence: &mut Evidence, ranks: usize, micro_steps: usize) -> Result<()> {
    let trained = both(ranks, micro_steps)?;
    // Later gradients depend on the steps before them.
    for (rank, (yours, right)) in trained.iter().enumerate() {
        let got = yours.log.first().map_or(f64::NAN, |logged| logged.grad_norm);
        evidence.near(format!("rank {rank}, step 0: grad_norm"), right.log[0].grad_norm, got);
    }
    let factor = factor(&trained[0], |logged| logged.grad_norm);
    let length = applied(ranks, micro_steps)?;
    let applies = (length - 1.0).abs() < 1e-3;
    // If the log shows the same factor, its rows have told it.
    if applies || (length - factor).abs() > 1e-3 {
        evidence.row(
            applies,
            "step 0: length of the applied gradient",
            "1.000 of the right one",
            format!("{length:.3} of it"),
        );
    }
    evidence.means_if(
        is_near(1.0, factor) && !applies,
        format!(
            "The norm in the log is right now, but the gradient is not: what reaches the optimizer is {length:.3} times as large \
             as it should be. AdamW hides this, because it divides by the gradient's own size. Clipping and every other figure \
             about gradients meet it again."
        ),
    );
    evidence.means_if(
        !is_near(1.0, factor) && applies,
        "The optimizer takes the right step, but the log has another norm. So anyone who reads the log, or clips by this norm, \
         decides by a gradient that nobody applies.",
    );
    evidence.means_if(
        (ranks, micro_steps) != (2, 4),
        format!(
            "With 4 micro-steps on 2 ranks the gradient was right. Here it is {factor:.3} times as large as it should be. A \
             repair must hold for every number of micro-steps and ranks."
        ),
    );
    evidence.known(&[factor]);
    evidence.means(
        "The gradient of a step is the mean over its micro-batches, averaged over the ranks.",
    );
    Ok(())
}

fn weights(evidence: &mut Evidence, ranks: usize, micro_steps: usize) -> Result<()> {
    let trained = both(ranks, micro_steps)?;
    let (yours, right) = &trained[0];
    for step in [0, 11] {
        let expected = &right.log[step];
        let got = yours.log.get(step);
        evidence.near(
            format!("step {step}: loss"),
            expected.loss,
            got.map_or(f64::NAN, |logged| logged.loss),
        );
        let got = got.map_or(f64::NAN, |logged| logged.grad_norm);
        evidence.near(format!("step {step}: grad_norm"), expected.grad_norm, got);
    }
    let largest = largest_difference(&yours.weights, &right.weights);
    // A repair may divide on a different line, and round there.
    let steps = format!("weights after {} steps: largest difference", yours.log.len());
    evidence.row(largest < 1e-5, steps, "below 0.00001", format!("{largest:.1e}"));
    let loss = factor(&trained[0], |logged| logged.loss);
    let grad_norm = factor(&trained[0], |logged| logged.grad_norm);
    evidence.known(&[loss]);
    evidence.means_if(
        micro_steps == 1 && !(is_near(1.0, loss) && is_near(1.0, grad_norm)),
        "With 1 micro-step nothing was wrong before, and now something is. Does your code divide by a constant instead of \
         the number of micro-steps?",
    );
    evidence.means(
        "The first line of the log is right, but the steps differ from the lab's. Did you change the learning rate, the \
         clipping or the optimizer? They were right. Only the gradient was wrong.",
    );
    Ok(())
}

/// A figure of the first step, divided by what it should be.
fn factor((yours, right): &(Trained, Trained), of: fn(&Logged) -> f64) -> f64 {
    yours.log.first().map_or(f64::NAN, of) / of(&right.log[0])
}
