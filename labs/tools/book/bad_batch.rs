//! The figure of a bad batch: a training whose gradient is too large in one step, and AdamW, which
//! remembers it.
//!
//! The figure's script (`book/figures/bad-batch.js`) computes the same training, and
//! book/browse.py compares every loss and every root of v.

use super::noise::noise;
use anyhow::Result;
use itertools::iproduct;
use kit::show::{Plot, Series};
use serde_json::{Value, json};
use shardlab::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
use shardlab::tensor::{Init, Params};

const WEIGHTS: usize = 16;
const STEPS: usize = 1000;
/// The step with the bad batch, counted from 1.
const BAD: usize = 200;
const RATE: f64 = 0.01;
/// The norm to which gradients are clipped.
const CLIP: f64 = 1.0;

/// What is done with the bad batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    Trained,
    Clipped,
    Skipped,
}

const ALL: [(&str, Done); 3] = [
    ("trained on", Done::Trained),
    ("clipped", Done::Clipped),
    ("skipped", Done::Skipped),
];

/// A training: before each step the loss, and after it the root of the mean second moment.
struct Training {
    losses: Vec<f32>,
    roots: Vec<f64>,
}

/// Weights that begin at 0 learn to be 1. Each batch adds noise to the gradient of half the squared
/// distance, and the gradient of one batch is `times` too large.
fn train(times: f64, done: Done, beta2: f64) -> Result<Training> {
    let params = Params::new();
    params.declare("weights", &[WEIGHTS], Init::Constant(0.0))?;
    params.allocate(0);
    let config = AdamWConfig { beta2, weight_decay: 0.0, ..AdamWConfig::default() };
    let mut adamw = AdamW::new(config, &params);
    let mut found = Training { losses: Vec::new(), roots: Vec::new() };
    for step in 1..=STEPS {
        let distances: Vec<f64> = params.values().iter().map(|&w| f64::from(w) - 1.0).collect();
        let squares: f64 = distances.iter().map(|distance| distance * distance).sum();
        found.losses.push((squares / (2 * WEIGHTS) as f64) as f32);
        let factor = if step == BAD { times } else { 1.0 };
        let gradient = distances.iter().enumerate();
        let gradient = gradient.map(|(i, distance)| {
            (factor * (distance - 0.7 * noise(step * WEIGHTS + i + 1))) as f32
        });
        let gradient: Vec<f32> = gradient.collect();
        params.gradients().copy_from_slice(&gradient);
        if step != BAD || done != Done::Skipped {
            let clip = if done == Done::Clipped { CLIP } else { 0.0 };
            let scale = clip_scale(global_norm(&gradient), clip)?;
            adamw.step(&params, RATE, scale)?;
        }
        let mut sum = 0.0;
        adamw.visit(&mut params.values_mut()[..], |_, _, state| {
            sum += state.exp_avg_sq.iter().map(|&v| f64::from(v)).sum::<f64>();
        })?;
        let correction = 1.0 - beta2.powi(adamw.steps() as i32);
        found.roots.push((sum / WEIGHTS as f64 / correction).sqrt());
    }
    Ok(found)
}

/// Every training that a reader can choose. Of the roots of v every tenth is enough.
pub(super) fn numbers() -> Result<Vec<Value>> {
    let betas = [0.9, 0.95, 0.99, 0.999];
    let of = |((words, done), beta2, times)| {
        let Training { losses, roots } = train(f64::from(times), done, beta2)?;
        let roots: Vec<f32> = roots.iter().skip(9).step_by(10).map(|&root| root as f32).collect();
        Ok(json!({
            "done": words, "beta2": beta2, "times": times, "losses": losses, "roots": roots,
        }))
    };
    iproduct!(ALL, betas, [1, 3, 10, 30, 100, 300, 1000]).map(of).collect()
}

/// The first picture, which stays where scripts do not run: the losses of the three ways.
pub(super) fn picture() -> Result<String> {
    let mut plot = Plot::new("loss; the gradient of step 200 is 1,000 times too large", "step");
    for (words, done) in ALL {
        let losses = train(1000.0, done, 0.99)?.losses.into_iter().enumerate();
        let points = losses.map(|(step, loss)| (step as f64 + 1.0, f64::from(loss)));
        plot = plot.series(Series::line(words, points));
    }
    Ok(plot.log_y().svg())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the page says: Adam bounds the jump, so 1,000 is hardly worse than 100 for the loss,
    /// but its second moment needs hundreds of steps to forget it.
    #[test]
    fn a_bad_batch_costs_time_more_than_loss() {
        let run = |times, done| train(times, done, 0.99).unwrap();
        let good = run(1.0, Done::Trained);
        // How far a run's loss is above the good one's, at most.
        let most = |training: &Training| {
            let both = training.losses.iter().zip(&good.losses).skip(BAD);
            both.map(|(loss, good)| loss / good).fold(0.0, f32::max)
        };
        let [hundred, thousand] = [100.0, 1000.0].map(|times| run(times, Done::Trained));
        assert!(most(&hundred) > 10.0 && most(&thousand) < 1.5 * most(&hundred));
        let large = |training: &Training| {
            let roots = training.roots.iter().zip(&good.roots).skip(BAD);
            roots.filter(|(bad, good)| **bad > 2.0 * **good).count()
        };
        assert!(large(&hundred) > 300 && large(&thousand) > large(&hundred) + 400);
        assert!(most(&run(1000.0, Done::Skipped)) < 1.25);
    }
}
