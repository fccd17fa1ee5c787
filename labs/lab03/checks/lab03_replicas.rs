//! The check of lab03-replicas: it trains two ranks with one difference, and compares their weights.

use exercise::one_model;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::data::Corpus;
use shardlab::difference::largest_difference;
use shardlab::model::Gpt;
use shardlab::train::{AdamW, Config, clip_scale, global_norm};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("A: other weights at the beginning", |evidence| {
            predicted(evidence, 0)
        }),
        ("B: other batches", |evidence| predicted(evidence, 1)),
        ("C: half the learning rate", |evidence| {
            predicted(evidence, 2)
        }),
        ("D: smaller batches", |evidence| predicted(evidence, 3)),
        ("E: AdamW's means are lost", |evidence| {
            predicted(evidence, 4)
        }),
        ("F: clipped before the average", |evidence| {
            predicted(evidence, 5)
        }),
    ])
}

const STEPS: usize = 3;

/// The weights of both ranks in the end, if rank 1 has the difference A, B, C, ...
fn weights(difference: char) -> Result<Vec<Vec<f32>>> {
    let corpus = Corpus::embedded()?;
    launch::run(2, |comm| {
        let differs = |here: char| comm.rank() == 1 && here == difference;
        let mut config = Config::small(2, &corpus);
        if differs('A') {
            config.seed += 1;
        }
        if differs('C') {
            config.schedule.lr /= 2.0;
        }
        if differs('D') {
            config.batch = 1;
        }
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(config.seed);
        // The seed of rank 0's data.
        config.seed = Config::small(2, &corpus).seed;
        let sampler = config.sampler(usize::from(differs('B')));
        let mut adamw = AdamW::new(config.adamw, &gpt.params);
        for step in 0..STEPS {
            let batch = sampler.batch(&corpus.train, step, 0);
            gpt.params.zero_gradients();
            gpt.loss(&batch, &config.pass(step, &batch.sequences))?
                .backward()?;
            if differs('F') {
                let norm = global_norm(&gpt.params.gradients());
                let scale = clip_scale(norm, norm / 10.0)?;
                for g in gpt.params.gradients().iter_mut() {
                    *g *= scale as f32;
                }
            }
            comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
            let norm = global_norm(&gpt.params.gradients());
            adamw.step(
                &gpt.params,
                config.schedule.at(step),
                clip_scale(norm, config.clip)?,
            )?;
            if differs('E') && step == 0 {
                adamw = AdamW::new(config.adamw, &gpt.params);
            }
        }
        let weights = gpt.params.values().clone();
        Ok(weights)
    })
}

fn predicted(evidence: &mut Evidence, which: usize) -> Result<()> {
    let difference = ['A', 'B', 'C', 'D', 'E', 'F'][which];
    let predicted = one_model()[which];
    let found = weights(difference)?;
    let largest = largest_difference(&found[1], &found[0]);
    let models = |one: bool| if one { "one model" } else { "two models" };
    let apart = if largest == 0.0 {
        "0".to_string()
    } else {
        format!("{largest:.0e}")
    };
    evidence.row(
        predicted == (largest == 0.0),
        format!("weights differ by {apart}"),
        models(largest == 0.0),
        models(predicted),
    );
    evidence.means(match difference {
        'A' => {
            "Both ranks add the same averaged gradients to different weights, so the weights stay different for ever. No loss \
             shows it. This is why `Ddp::new` begins with a broadcast."
        }
        'B' => {
            "Both ranks take a step with the same average. That their batches differ is the purpose: with equal ones two ranks \
             would do the work of one."
        }
        'C' => {
            "The gradients are equal, and the steps are not: whatever a rank does with the average, all must do alike. \
             From the second step on, the ranks average gradients of two models."
        }
        'D' => {
            "Both ranks take a step with the same average. Is it the right one? No: rank 1's one sequence counts as much as rank \
             0's three. A comparison of the models cannot find this."
        }
        'E' => {
            "AdamW's step depends on its means, and rank 1 has only those of the steps since. A restart that loads the weights \
             and forgets the optimizer on one rank makes two models."
        }
        _ => {
            "Both ranks take a step with the same average, so they hold one model. It is not the mean of their gradients: rank \
             1's were shortened. A comparison of the models cannot find this."
        }
    });
    Ok(())
}
