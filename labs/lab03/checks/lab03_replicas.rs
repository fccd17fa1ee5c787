//! The check of lab03-replicas: it trains two ranks with the difference that the reader names, and
//! compares their weights.

use exercise::two_models;
use kit::check::{Evidence, run};
use shardlab::comm::Reduce;
use shardlab::data::Corpus;
use shardlab::difference::largest_difference;
use shardlab::model::Gpt;
use shardlab::train::{AdamW, Config, clip_scale, global_norm};
use shardlab::{Result, launch};
use std::process::ExitCode;

pub fn main() -> ExitCode {
    run(&[("after three steps the ranks hold two models", compared)])
}

const STEPS: usize = 3;

/// The weights of both ranks in the end, if rank 1 has the difference A, B, C or D.
fn weights(difference: char) -> Result<Vec<Vec<f32>>> {
    let corpus = Corpus::embedded()?;
    launch::run(2, |comm| {
        let differs = |here: char| comm.rank() == 1 && here == difference;
        let mut config = Config::small(2, &corpus);
        if differs('C') {
            config.adamw.weight_decay = 0.0;
        }
        if differs('D') {
            config.batch = 1;
        }
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(config.seed);
        let sampler = config.sampler(comm.rank());
        let mut adamw = AdamW::new(config.adamw, &gpt.params);
        for step in 0..STEPS {
            let batch = sampler.batch(&corpus.train, step, 0);
            gpt.params.zero_gradients();
            gpt.loss(&batch, &config.pass(step, &batch.sequences))?.backward()?;
            let norm = global_norm(&gpt.params.gradients());
            let scale = if differs('A') {
                0.0
            } else if differs('B') {
                clip_scale(norm, norm / 10.0)?
            } else {
                1.0
            };
            for g in gpt.params.gradients().iter_mut() {
                *g *= scale as f32;
            }
            comm.all_reduce(&mut gpt.params.gradients(), Reduce::Mean)?;
            let norm = global_norm(&gpt.params.gradients());
            adamw.step(&gpt.params, config.schedule.at(step), clip_scale(norm, config.clip)?)?;
        }
        let weights = gpt.params.values().clone();
        Ok(weights)
    })
}

fn compared(evidence: &mut Evidence) -> Result<()> {
    let named = two_models().to_ascii_uppercase();
    if !('A'..='D').contains(&named) {
        evidence.answer("a letter of the picture", ' ', named);
        evidence.means("The picture has the letters A, B, C and D.");
        return Ok(());
    }
    let found = weights(named)?;
    let largest = largest_difference(&found[1], &found[0]);
    let apart = if largest == 0.0 {
        "0".to_string()
    } else {
        format!("{largest:.0e}")
    };
    let at = format!("{named}: the weights differ by");
    evidence.row(largest > 0.0, at, "more than 0", apart);
    evidence.means(match named {
        'A' => {
            "Both ranks take a step with the same average, so they hold one model. It is not the right average: rank 1 has added \
             nothing to it, and still counts as one of two. A comparison of the ranks' weights cannot find this."
        }
        'B' => {
            "Both ranks take a step with the same average, so they hold one model. It is not the mean of their gradients: rank \
             1's were shortened first. A comparison of the ranks' weights cannot find this."
        }
        _ => {
            "Both ranks take a step with the same average, so they hold one model. It is not the mean over all sequences: rank \
             1's one counts as much as rank 0's three. A comparison of the ranks' weights cannot find this."
        }
    });
    Ok(())
}
