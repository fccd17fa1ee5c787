//! What small updates lose: why the master copy.

use crate::seen::Step;
use anyhow::Result;
use kit::show::{Screen, percent, significant, table as of_rows};
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::parallel::Strategy;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};

/// Steps of the three trainings.
const STEPS: usize = 120;

/// The weights that an update does not move, and the losses of trainings with a master copy and
/// without.
pub fn table(screen: &Screen, step: &Step, config: &Config, corpus: &Corpus) -> Result<String> {
    let stored = Precision::Bf16.rounded(&step.weights);
    let updated: Vec<f32> = stored
        .iter()
        .zip(&step.updates)
        .map(|(weight, update)| weight - update)
        .collect();
    let stuck = stored.iter().zip(Precision::Bf16.rounded(&updated)).filter(|(a, b)| **a == *b);
    let stuck = percent(stuck.count() as f64 / stored.len() as f64);
    let text = &corpus.train;
    let mixed = Config { precision: Precision::Bf16, ..config.clone() };
    let loss = |config: &Config, rounds| trained(config, text, rounds);
    let losses = [
        ("f32", loss(config, false)?, "-".to_string()),
        ("bf16, f32 master copy", loss(&mixed, false)?, "-".to_string()),
        ("bf16 alone", loss(config, true)?, stuck),
    ];
    let rows =
        losses.map(|(what, loss, stuck)| vec![what.to_string(), significant(loss, 4), stuck]);
    let loss = format!("loss after {STEPS} steps");
    let head = ["weights are stored in", &loss, "updates that move nothing"];
    Ok(of_rows(screen, &head, &rows) + "\n")
}

/// The mean loss of the last steps; with `rounds`, weights are rounded after each step, and there
/// is no other copy of them.
fn trained(config: &Config, text: &[u32], rounds: bool) -> Result<f64> {
    const LAST: usize = 20;
    let mut training = Training::new(config, &Strategy::SINGLE, &Comm::alone())?;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        if rounds {
            let mut values = training.stages.chunks[0].params.whole_mut()?;
            let rounded = Precision::Bf16.rounded(&values);
            values.copy_from_slice(&rounded);
        }
        losses.push(training.step(text, step)?.loss);
    }
    Ok(losses[STEPS - LAST..].iter().sum::<f64>() / LAST as f64)
}
