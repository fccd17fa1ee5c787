//! lab03-dropout · Well on one rank, worse on three
//!
//! Broken on purpose: it runs, its loss falls, and all ranks hold the same model. The model drops
//! activations while it trains (`--dropout 0.2`), against overfitting. With one rank this works. On
//! three ranks it overfits sooner. Each rank's first loss:
//!
//! ```text
//!                  rank 0     rank 1     rank 2
//! it should be   4.146825   4.173336   4.184377
//! it is          4.146825   4.159398   4.184056
//! ```
//!
//! Repair it, and keep the evaluations: every 3 steps, at least on rank 0, without dropout.

use shardlab::data::{Batch, Corpus};
use shardlab::train::{AdamW, Config, clip_scale, global_norm};
use shardlab::{Result, comm::Comm, model::Gpt, parallel::Ddp, tensor::Tensor};

const EVAL_INTERVAL: usize = 3;

/// A rank's losses: on its own batches, one per step, and on the validation text. Rank 0's
/// evaluations are checked.
#[derive(Default)]
pub struct History {
    pub losses: Vec<f64>,
    pub evaluations: Vec<f64>,
}

/// A model that drops activations while it trains, as in PyTorch.
struct Model<'a> {
    gpt: &'a Gpt,
    config: &'a Config,
    training: bool,
}

impl Model<'_> {
    fn train(&mut self) {
        self.training = true;
    }

    fn eval(&mut self) {
        self.training = false;
    }

    fn loss(&self, batch: &Batch, step: usize) -> Result<Tensor> {
        let mut pass = self.config.pass(step, &batch.sequences);
        if !self.training {
            pass.dropout = None;
        }
        Ok(self.gpt.loss(batch, &pass)?)
    }
}

/// The mean loss of some batches.
fn evaluate(model: &mut Model, batches: &[Batch], step: usize) -> Result<Option<f64>> {
    model.eval();
    if batches.is_empty() {
        return Ok(None);
    }
    let mut sum = 0.0;
    for batch in batches {
        sum += f64::from(model.loss(batch, step)?.to_scalar::<f32>()?);
    }
    model.train();
    Ok(Some(sum / batches.len() as f64))
}

/// Trains `gpt` for the steps that `config` says; every rank calls it. `validation` are the batches
/// to evaluate with.
pub fn train(
    comm: &Comm,
    gpt: &Gpt,
    config: &Config,
    corpus: &Corpus,
    validation: &[Batch],
) -> Result<History> {
    let ddp = Ddp::new(&gpt.params, comm)?;
    let mut adamw = AdamW::new(config.adamw, &gpt.params);
    let mut model = Model { gpt, config, training: true };
    let validation = if comm.rank() == 0 { validation } else { &[] };
    let mut history = History::default();
    for step in 0..config.steps {
        if step.is_multiple_of(EVAL_INTERVAL) {
            history.evaluations.extend(evaluate(&mut model, validation, step)?);
        }
        let batch = config.sampler(comm.rank()).batch(&corpus.train, step, 0);
        gpt.params.zero_gradients();
        let loss = model.loss(&batch, step)?;
        loss.backward()?;
        ddp.finish()?;
        let norm = global_norm(&gpt.params.gradients());
        let lr = config.schedule.at(step);
        adamw.step(&gpt.params, lr, clip_scale(norm, config.clip)?)?;
        history.losses.push(f64::from(loss.to_scalar::<f32>()?));
    }
    Ok(history)
}
