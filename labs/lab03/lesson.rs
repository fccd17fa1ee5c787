//! lab03 · One model, many ranks
//!
//! How do N ranks train one model, and why is it the same model as with one rank?
//!
//! Every rank holds the whole model and draws its own part of the data. Once per step the ranks
//! average their gradients (an all-reduce). Every rank then applies the same update, so N replicas
//! stay one model. `cargo run --bin lab03` takes such steps beside the library's, which averages
//! sooner, and trains a GPT. Break it: `--break no-average`.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::algorithms::Algorithm;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::model::Gpt;
use shardlab::parallel::zero::Stage;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{AdamW, Config, Diverged, Setup, clip_scale, global_norm};

// ANCHOR: heart
/// One step of data parallelism. Every rank has the whole model, begun with the same weights, and
/// sequences of its own. Averaging is all that they do together. Returns this rank's loss, and the
/// norm of the averaged gradients.
fn step_plainly(
    comm: &Comm,
    gpt: &Gpt,
    adamw: &mut AdamW,
    config: &Config,
    batch: &Batch,
    step: usize,
) -> Result<(f32, f64)> {
    gpt.params.zero_gradients();
    let pass = config.pass(step, &batch.sequences); // this step's dropout
    let loss = gpt.loss(batch, &pass)?;
    loss.backward()?; // the gradients of this rank's sequences

    // The model's own, locked: one parameter after the other.
    let mut gradients = gpt.params.gradients();
    for parameter in gpt.params.specs() {
        comm.all_reduce(&mut gradients[parameter.range()], Reduce::Mean)?;
    }
    // Now every rank has the gradients of all ranks' sequences, and so it takes the step that they
    // all take.
    let norm = global_norm(&gradients);
    drop(gradients); // unlocked, for the optimizer
    let lr = config.schedule.at(step);
    adamw.step(&gpt.params, lr, clip_scale(norm, config.clip)?)?;
    Ok((loss.to_scalar()?, norm))
}
// ANCHOR_END: heart

/// Three steps of a small model in the plainest way; and again with buckets, which are averaged
/// during the backward pass, or after it by the rounds of `all_reduce`.
pub fn compare_steps(
    comm: &Comm,
    config: &Config,
    text: &[u32],
    all_reduce: Option<Algorithm>,
) -> Result<Beside> {
    const STEPS: usize = 3;
    let config = Config {
        grad_accum: 1,          // the plain step has one backward pass
        reduce: Precision::F32, // it keeps and adds up gradients in f32
        ..config.parity_check()
    };
    let sampler = config.sampler(comm.rank());
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed); // one seed on every rank: equal weights without a broadcast
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut lesson = Vec::new();
    for step in 0..STEPS {
        let batch = sampler.batch(text, step, 0);
        let taken = step_plainly(comm, &gpt, &mut adamw, &config, &batch, step);
        let (loss, norm) = taken.map_err(|error| Diverged::at(step + 1, error))?;
        // AdamW trains alike with gradients that are twice as large, so losses alone do not show a
        // sum in place of a mean.
        lesson.extend([f64::from(loss), norm]);
    }

    let data_parallel = Strategy::data(comm.size(), Stage::Ddp);
    let averaging = ZeroConfig { algorithm: all_reduce, ..config.zero(Stage::Ddp) };
    let mut training = Setup::new(&config, &data_parallel).zero(averaging).begin(comm)?;
    let mut library = Vec::new();
    for step in 0..STEPS {
        let taken = training.step(text, step)?;
        library.extend([taken.loss, taken.grad_norm]);
    }
    let in_one_order = comm.adds_in_rank_order() && all_reduce.is_none();
    Ok(Beside::of_losses(comm, &lesson, &library, in_one_order, config.precision)?)
}
