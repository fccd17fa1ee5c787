//! lab06 · Who waits for whom
//!
//! What if the model is divided by layers: who waits for whom? Each rank holds some layers, and
//! micro-batches travel from rank to rank. `run_in_order` is such a pipeline in its plainest form;
//! the first check compares its gradients with those of the library's, which trains.
//!
//! Run `cargo run --bin lab06`: the screen draws a step of four ranks as predicted and as measured.

use anyhow::{Context, Result};
use candle_core::{Device, Tensor, Var};
use kit::Beside;
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::model::{Gpt, Input, Pass};
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Partition, Schedule};
use shardlab::tensor;
use shardlab::train::{Config, Training};
use std::collections::HashMap;

/// An entry of a list: the forward or the backward pass of the micro-batch with this number.
#[derive(Clone, Copy)]
enum Op {
    Forward(usize),
    Backward(usize),
}

// ANCHOR: heart
/// Runs one rank's list on its layers. Backward passes add weights' gradients to `stage.params`.
fn run_in_order(
    order: &[Op],
    stage: &Gpt,
    micro_batches: &[(Batch, Pass)],
    shape: [usize; 3], // of activations: sequences, length, width
    comm: &Comm,
) -> Result<()> {
    let rank = comm.rank();
    let is_last = rank + 1 == comm.size();
    let mut kept = HashMap::new(); // what backward passes need of forward passes
    for op in order {
        match *op {
            Op::Forward(i) => {
                let x = match rank {
                    0 => None,
                    _ => Some(recv(comm, rank - 1, shape)?),
                };
                let y = forward(stage, x.as_ref(), &micro_batches[i])?; // the loss, if is_last
                if !is_last {
                    send(comm, rank + 1, &y)?;
                }
                kept.insert(i, (x, y));
            }
            Op::Backward(i) => {
                let (x, y) = kept.remove(&i).context("backward before forward")?;
                let gradients = if is_last {
                    (y / micro_batches.len() as f64)?.backward()? // of the mean loss
                } else {
                    let dy = recv(comm, rank + 1, shape)?;
                    (y * dy.as_tensor())?.sum_all()?.backward()? // a sum whose gradient in y is dy
                };
                if let Some(x) = x {
                    send(comm, rank - 1, gradients.get(&x).context("x is not used")?)?;
                }
            }
        }
    }
    Ok(())
}
// ANCHOR_END: heart

// ANCHOR: order
/// GPipe's order, the same for every stage: all micro-batches forward, then all of them backward.
fn gpipe(micro_batches: usize) -> Vec<Op> {
    let forward = (0..micro_batches).map(Op::Forward);
    let backward = (0..micro_batches).map(Op::Backward);
    forward.chain(backward).collect()
}
// ANCHOR_END: order

/// A stage's forward pass: of tokens on the first stage, of activations on the others. The last
/// stage returns the loss.
fn forward(stage: &Gpt, x: Option<&Var>, (batch, pass): &(Batch, Pass)) -> Result<Tensor> {
    let run = |input: Input| stage.forward(input, &batch.targets, pass);
    Ok(match x {
        Some(x) => tensor::node(x, |x| run(Input::Hidden(x)))?,
        None => tensor::root(run(Input::Tokens { ids: &batch.inputs, length: batch.length })?)?,
    })
}

/// Sends activations or their gradient.
fn send(comm: &Comm, to: usize, x: &Tensor) -> Result<()> {
    let numbers = x.flatten_all()?.to_vec1::<f32>()?;
    Ok(comm.send(&numbers, to)?)
}

/// Receives activations or their gradient: a variable, so that a backward pass computes its
/// gradient.
fn recv(comm: &Comm, from: usize, shape: [usize; 3]) -> Result<Var> {
    let mut numbers = vec![0f32; shape.iter().product()];
    comm.recv(&mut numbers, from)?;
    Ok(Var::from_vec(numbers, &shape, &Device::Cpu)?)
}

/// One step as above, and with the library's pipeline in the same order: compares every gradient of
/// this rank's stage. `partition` says which layers a stage has.
pub fn compare_gradients(
    comm: &Comm,
    config: &Config,
    text: &[u32],
    partition: Partition,
) -> Result<Beside> {
    let strategy = Strategy {
        pipeline: comm.size(),
        schedule: Some(Schedule::GPipe),
        partition,
        ..Strategy::SINGLE
    };
    let mut training = Training::new(config, &strategy, comm)?;
    let micro_batches = training.draw(text, 0, &mut ())?;
    training.passes(&micro_batches)?;
    let stage = &training.stages.chunks[0];
    let library = stage.params.gradients().to_vec();

    stage.params.zero_gradients();
    let shape = [config.batch, config.shape.block, config.shape.embd];
    let order = gpipe(config.grad_accum);
    run_in_order(&order, stage, &micro_batches, shape, comm)?;
    let lesson = stage.params.gradients().to_vec();
    Ok(Beside::of(comm, &lesson, &library, 0.0)?)
}
