//! lab02 · The smallest training job
//!
//! What does a rank do in one iteration, and how long does it wait for the others?
//!
//! Two ranks train five linear layers to reconstruct random numbers, in plain candle: to copy into
//! a project of your own. Run `cargo run --bin lab02`: the loss, which begins at about 2,800 (no
//! better than answering 0) and ends below 500, and a timeline of all ranks.

use super::MlpConfig;
use anyhow::{Context, Result};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Module, Optimizer as _, ParamsAdamW, VarBuilder, VarMap};
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Uniform;
use shardlab::parallel::Ddp;
use shardlab::tensor::Precision;
use shardlab::train::global_norm;
use std::collections::BTreeMap;
use std::sync::PoisonError;

// ANCHOR: heart
/// Trains five linear layers on this rank's samples, in plain candle. Returns the loss of each
/// step, and the last gradients.
///
/// This is a training of one rank, and two calls of `comm` make it data parallel: a broadcast
/// before the first step, and an all-reduce for each gradient in every step. `inputs` draws this
/// rank's samples: uniform random numbers.
fn train_plainly(
    comm: &Comm,
    plain: &Plain,
    inputs: Uniform,
    steps: usize,
) -> Result<(Vec<f64>, Option<GradStore>)> {
    let weights = plain.weights();
    for weight in &weights {
        let mut values = weight.flatten_all()?.to_vec1::<f32>()?;
        comm.broadcast(&mut values, 0)?; // all ranks begin with rank 0's weights
        weight.set(&Tensor::from_vec(values, weight.shape(), &Device::Cpu)?)?;
    }
    let mut adam = candle_nn::AdamW::new(weights.clone(), plain.adam.clone())?;
    let mut losses = Vec::new();
    let mut last = None;
    for step in 0..steps {
        let samples = inputs.batch(step); // no other rank has these
        let x = Tensor::from_vec(samples, (inputs.batch, inputs.width), &Device::Cpu)?;
        let loss = (plain.forward(&x)? - &x)?.sqr()?.sum_all()?;
        let mut gradients = loss.backward()?;
        for weight in &weights {
            let gradient = gradients.get(weight).context("a layer was not used")?;
            let mut values = gradient.flatten_all()?.to_vec1::<f32>()?;
            comm.all_reduce(&mut values, Reduce::Mean)?; // the mean of all ranks' gradients
            gradients.insert(weight, Tensor::from_vec(values, weight.shape(), &Device::Cpu)?);
        }
        adam.step(&gradients)?; // the same step on every rank, so the ranks keep one model
        losses.push(f64::from(loss.to_scalar::<f32>()?));
        last = Some(gradients);
    }
    Ok((losses, last))
}
// ANCHOR_END: heart

/// A model as any program with candle has one.
struct Plain {
    variables: VarMap,
    layers: Vec<candle_nn::Linear>,
    adam: ParamsAdamW,
}

impl Plain {
    fn new(config: &MlpConfig) -> Result<Plain> {
        let variables = VarMap::new();
        let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu).pp("layers");
        let sizes = config.widths().windows(2).enumerate();
        let layers = sizes.map(|(i, sizes)| candle_nn::linear(sizes[0], sizes[1], builder.pp(i)));
        Ok(Plain {
            layers: layers.collect::<candle_core::Result<_>>()?,
            adam: config.plain_adam(),
            variables,
        })
    }

    fn forward(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))
    }

    /// The weights in the order of their names. A `VarMap` lists them in a different order on every
    /// rank: ranks would average different weights with each other, without an error where these
    /// have the same shape.
    fn weights(&self) -> Vec<Var> {
        let variables = self.variables.data().lock();
        let variables = variables.unwrap_or_else(PoisonError::into_inner);
        let by_name: BTreeMap<&String, &Var> = variables.iter().collect();
        by_name.into_values().cloned().collect()
    }
}

/// Three steps in plain candle, and with the library's layers, buckets and optimizer, from the same
/// weights.
pub fn compare_steps(comm: &Comm, config: &MlpConfig) -> Result<Beside> {
    const STEPS: usize = 3;
    let model = config.model()?;
    // A seed of its own for each rank: a broadcast that is missing would show.
    model.params.allocate(config.seed_of(comm.rank()));
    let mut plain = Plain::new(config)?;
    for spec in model.params.specs() {
        let values = &model.params.values()[spec.range()];
        let values = Tensor::from_slice(values, &spec.shape[..], &Device::Cpu)?;
        plain.variables.set_one(&spec.name, values)?;
    }
    let inputs = config.inputs(comm.rank());
    let (mut lesson, gradients) = train_plainly(comm, &plain, inputs, STEPS)?;
    // AdamW trains alike with gradients that are twice as large, so losses alone do not show a sum
    // in place of a mean.
    let gradients = gradients.context("no step was taken")?;
    let mut last = Vec::new();
    for weight in plain.weights() {
        let gradient = gradients.get(&weight).context("a layer was not used")?;
        last.extend(gradient.flatten_all()?.to_vec1::<f32>()?);
    }
    lesson.push(global_norm(&last));

    let ddp = Ddp::new(&model.params, comm)?;
    let mut adam = config.adam(&model.params);
    let mut library = Vec::new();
    for step in 0..STEPS {
        let loss = model.loss(&inputs.batch(step))?;
        model.params.zero_gradients();
        loss.backward()?;
        ddp.finish()?; // averages each bucket of gradients
        adam.step(&model.params, config.lr, 1.0)?;
        library.push(f64::from(loss.to_scalar::<f32>()?));
    }
    library.push(global_norm(&model.params.gradients()));
    // candle multiplies and rounds in an order of its own.
    Ok(Beside::of_losses(comm, &lesson, &library, false, Precision::F32)?)
}
