//! lab03-accum · The clipping that clips no more
//!
//! Broken on purpose: it runs, its loss falls, and all ranks hold the same model.
//!
//! A team's batch no longer fitted into memory, so they cut it into micro-batches. The losses in
//! the log stayed as they were. But gradients are never clipped any more, and last night a spike
//! went through and ruined a run. Here are 12 steps with the same sequences on the same two ranks:
//!
//! ```text
//!                             first loss    steps clipped at 0.5
//! one batch of 12 sequences        4.186                12 of 12
//! four micro-batches of 3          4.186                 0 of 12
//! ```
//!
//! Repair it: for any number of micro-steps, a step must do what a step with the whole batch at
//! once does.

use shardlab::Result;
use shardlab::comm::Comm;
use shardlab::data::Corpus;
use shardlab::model::Gpt;
use shardlab::parallel::Ddp;
use shardlab::tensor::Tensor;
use shardlab::train::{AdamW, Config, clip_scale, global_norm};

/// A step's line in the log.
pub struct Logged {
    /// The mean over this rank's sequences of the step.
    pub loss: f64,
    /// The norm of the averaged gradient, before clipping.
    pub grad_norm: f64,
}

/// The work around a loop's backward passes: averaging, clipping, the optimizer.
struct Engine<'a> {
    gpt: &'a Gpt,
    config: &'a Config,
    ddp: Ddp,
    adamw: AdamW,
    /// Backward passes since the last step.
    micro: usize,
}

impl Engine<'_> {
    /// The backward pass of a micro-batch. The ranks average their gradients in the last backward
    /// pass of a step.
    fn backward(&mut self, loss: &Tensor) -> Result<()> {
        let loss = (loss / self.config.grad_accum as f64)?;
        self.micro += 1;
        self.ddp.synchronise(self.micro == self.config.grad_accum);
        loss.backward()?;
        Ok(())
    }

    /// The optimizer's step. Returns the norm of the averaged gradient.
    fn step(&mut self, step: usize) -> Result<f64> {
        self.ddp.finish()?;
        let norm = global_norm(&self.gpt.params.gradients());
        let scale = clip_scale(norm, self.config.clip)?;
        self.adamw.step(&self.gpt.params, self.config.schedule.at(step), scale)?;
        self.gpt.params.zero_gradients();
        self.micro = 0;
        Ok(norm)
    }
}

/// Trains `gpt` for the steps that `config` says; every rank calls it.
pub fn train(comm: &Comm, gpt: &Gpt, config: &Config, corpus: &Corpus) -> Result<Vec<Logged>> {
    let ddp = Ddp::new(&gpt.params, comm)?;
    let adamw = AdamW::new(config.adamw, &gpt.params);
    let mut engine = Engine { gpt, config, ddp, adamw, micro: 0 };
    let sampler = config.sampler(comm.rank());
    let mut log = Vec::new();
    for step in 0..config.steps {
        let tokens = config.tokens_per_step() / config.ranks;
        let mut mean = 0.0;
        for micro in 0..config.grad_accum {
            let batch = sampler.batch(&corpus.train, step, micro);
            let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
            let loss = (loss * (batch.tokens() as f64 / tokens as f64))?;
            mean += f64::from(loss.to_scalar::<f32>()?);
            engine.backward(&loss)?;
        }
        log.push(Logged { loss: mean, grad_norm: engine.step(step)? });
    }
    Ok(log)
}
