//! What a pipeline is compared with: the same micro-batches on one rank, one after the other.

use anyhow::Result;
use shardlab::model::{Gpt, Input, Plain};
use shardlab::optim::stored_norm;
use shardlab::tensor::Precision;
use shardlab::train::{AdamW, Config, Diverged, clip_scale};
use std::ops::Range;

/// A short training on one rank.
pub struct Unpipelined {
    pub losses: Vec<f64>,
    pub grad_norms: Vec<f64>,
    /// The parameters of the first part and of the rest, as stages have them.
    pub parts: [Gpt; 2],
}

/// Trains on one rank, micro-batch after micro-batch, without a pipeline: the same sums in the same
/// order as with one.
///
/// A pipeline's first and last stage each add up their own part of the token table's gradient, and
/// then add the two parts. So this model, too, has the table twice: once for the embedding and once
/// for the head.
///
/// # Errors
/// [`Diverged`], if a norm is not finite; if the model's shape is impossible.
pub fn unpipelined(config: &Config, text: &[u32], steps: usize) -> Result<Unpipelined> {
    let layers = config.shape.layers;
    let first = Gpt::stage(&config.shape, 0..layers / 2, &Plain)?;
    let rest = Gpt::stage(&config.shape, layers / 2..layers, &Plain)?;
    let parts = [first, rest];
    for part in &parts {
        part.params.allocate(config.seed);
    }
    // What the optimizer updates; a pass reads it as it is stored.
    let mut masters = parts.each_ref().map(|part| part.params.values().clone());
    store(&parts, &masters, config.precision);
    let mut optimizers = parts.each_ref().map(|part| AdamW::new(config.adamw, &part.params));
    let mut losses = Vec::new();
    let mut grad_norms = Vec::new();
    for step in 0..steps {
        for part in &parts {
            part.params.zero_gradients();
        }
        let mut sum = 0.0;
        for micro in 0..config.grad_accum {
            let batch = config.sampler(0).batch(text, step, micro);
            let pass = config.pass(step, &batch.sequences);
            let tokens = Input::Tokens { ids: &batch.inputs, length: batch.length };
            let x = parts[0].forward(tokens, &[], &pass)?;
            let loss = parts[1].forward(Input::Hidden(&x), &batch.targets, &pass)?;
            sum += f64::from(loss.scalar()?);
            loss.backward(vec![(1.0 / config.grad_accum as f64) as f32], None)?;
        }
        let norm = tie(&parts);
        let scale = clip_scale(norm, config.clip);
        let scale = scale.map_err(|error| Diverged::at(step + 1, error.into()))?;
        store(&parts, &masters, Precision::F32);
        for (adamw, part) in optimizers.iter_mut().zip(&parts) {
            adamw.step(&part.params, config.schedule.at(step), scale)?;
        }
        masters = parts.each_ref().map(|part| part.params.values().clone());
        store(&parts, &masters, config.precision);
        losses.push(sum / config.grad_accum as f64);
        grad_norms.push(norm);
    }
    Ok(Unpipelined { losses, grad_norms, parts })
}

/// Sets the parts' parameters to the nearest that `precision` has.
fn store(parts: &[Gpt; 2], masters: &[Vec<f32>; 2], precision: Precision) {
    for (part, master) in parts.iter().zip(masters) {
        part.params.values_mut().copy_from_slice(&precision.rounded(master));
    }
}

/// The token table's elements in a part.
fn table(part: &Gpt) -> Range<usize> {
    let mut specs = part.params.specs().iter();
    let spec = specs.find(|spec| spec.name == "wte.weight");
    spec.map(|spec| spec.range()).unwrap_or_default()
}

/// Adds up the table's two gradients, as the pipeline's two ends do. Returns the norm of all
/// gradients, in which the table counts once.
fn tie(parts: &[Gpt; 2]) -> f64 {
    let [first_table, rest_table] = parts.each_ref().map(table);
    let mut first = parts[0].params.gradients();
    let mut rest = parts[1].params.gradients();
    for (a, b) in first[first_table].iter_mut().zip(&mut rest[rest_table.clone()]) {
        *a += *b;
        *b = *a;
    }
    stored_norm(&[&first[..], &rest[..rest_table.start], &rest[rest_table.end..]])
}

impl Unpipelined {
    /// The value of a parameter by its name.
    pub fn value(&self, name: &str) -> Option<Vec<f32>> {
        let of = |part: &Gpt| {
            let spec = part.params.specs().iter().find(|spec| spec.name == name)?;
            Some(part.params.values()[spec.range()].to_vec())
        };
        self.parts.iter().find_map(of)
    }
}
