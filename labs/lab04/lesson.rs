//! lab04 · Who holds what
//!
//! What does each rank have to hold, and what does it cost to hold less?
//!
//! Data parallelism keeps N copies of the parameters, the gradients and the optimizer state. ZeRO
//! shards them, stage by stage. Below is its first stage by hand. `cargo run --bin lab04` compares
//! it with the library's, and what a rank holds and sends in all four stages. Draw it: `--show
//! holdings`; break it: `--break local-norm`; train with one stage: `--zero 3`.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::model::Gpt;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::{AdamWConfig as Adam, Config, Training};
use std::ops::Range;

// ANCHOR: heart
/// One rank of ZeRO-1. It holds all parameters and gradients, but Adam's moments for its slice
/// only.
struct Shard {
    /// A copy of all parameters, one after the other, with zeros after them that make all slices
    /// equally long.
    parameters: Vec<f32>,
    slice: Range<usize>,
    /// The moments of the slice: means of the gradients, and of their squares.
    m: Vec<f32>,
    v: Vec<f32>,
}

impl Shard {
    /// Takes step number `t`, counted from 1. `gradients` are this rank's, of all parameters.
    fn step(&mut self, gradients: &[f32], t: i32, lr: f64, adam: &Adam, comm: &Comm) -> Result<()> {
        let mut padded = gradients.to_vec();
        padded.resize(self.parameters.len(), 0.0);
        let mut mean = vec![0.0; self.slice.len()];
        comm.reduce_scatter(&padded, &mut mean, Reduce::Mean)?; // the mean gradients of my slice

        let mut mine = self.parameters[self.slice.clone()].to_vec();
        let beta1 = adam.beta1 as f32;
        let beta2 = adam.beta2 as f32;
        let rest1 = (1.0 - adam.beta1) as f32;
        let rest2 = (1.0 - adam.beta2) as f32;
        // Both means begin at 0. These divisors make up for it.
        let step_size = (lr / (1.0 - adam.beta1.powi(t))) as f32;
        let inverse_root = (1.0 / (1.0 - adam.beta2.powi(t)).sqrt()) as f32;
        for (i, &g) in mean.iter().enumerate() {
            self.m[i] = beta1 * self.m[i] + rest1 * g;
            self.v[i] = beta2 * self.v[i] + rest2 * g * g;
            let root = self.v[i].sqrt() * inverse_root;
            mine[i] -= step_size * self.m[i] / (root + adam.epsilon as f32);
        }
        comm.all_gather(&mine, &mut self.parameters)?; // everyone's slices
        Ok(())
    }
}
// ANCHOR_END: heart

impl Shard {
    /// This rank's shard before the first step.
    fn new(parameters: &[f32], comm: &Comm) -> Shard {
        let length = parameters.len().div_ceil(comm.size());
        let mut padded = parameters.to_vec();
        padded.resize(length * comm.size(), 0.0);
        Shard {
            parameters: padded,
            slice: comm.rank() * length..(comm.rank() + 1) * length,
            m: vec![0.0; length],
            v: vec![0.0; length],
        }
    }
}

// ANCHOR: plainly
/// Trains `gpt` with ZeRO-1. Returns the losses.
fn train_plainly(comm: &Comm, gpt: &Gpt, config: &Config, text: &[u32]) -> Result<Vec<f64>> {
    let mut shard = Shard::new(&gpt.params.values(), comm);
    let sampler = config.sampler(comm.rank()); // every rank draws its own sequences
    let mut losses = Vec::new();
    for step in 0..config.steps {
        let batch = sampler.batch(text, step, 0);
        gpt.params.zero_gradients();
        let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
        loss.backward()?;
        let lr = config.schedule.at(step);
        let t = step as i32 + 1;
        shard.step(&gpt.params.gradients(), t, lr, &config.adamw, comm)?;
        let mut values = gpt.params.values_mut();
        let length = values.len();
        values.copy_from_slice(&shard.parameters[..length]);
        losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    Ok(losses)
}
// ANCHOR_END: plainly

/// Three steps of a small model, as above and with the library's ZeRO-1, which cuts gradients into
/// buckets and reduces them during the backward pass.
pub fn compare_trainings(comm: &Comm, config: &Config, text: &[u32]) -> Result<Beside> {
    let small = config.parity_check();
    let config = Config {
        steps: 3,
        grad_accum: 1,
        reduce: Precision::F32, // it keeps and adds up gradients in f32
        // What the plain step leaves out: weight decay, and clipping. That needs the norm of all
        // slices; an exercise asks for it.
        clip: 0.0,
        adamw: Adam { weight_decay: 0.0, ..small.adamw },
        ..small
    };
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let lesson = train_plainly(comm, &gpt, &config, text)?;

    let mut training = Training::new(&config, &Strategy::data(comm.size(), Stage::One), comm)?;
    let mut library = Vec::new();
    for step in 0..config.steps {
        library.push(training.step(text, step)?.loss);
    }
    let in_one_order = comm.adds_in_rank_order();
    Ok(Beside::of_losses(comm, &lesson, &library, in_one_order, config.precision)?)
}
