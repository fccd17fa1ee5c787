//! The training, and what is watched and said meanwhile.

use crate::flags::Args;
use anyhow::Result;
use kit::Part::{Backward, Data, Forward, Optimizer};
use kit::{Broken, Clock, Evaluator, Journal, StepOutcome, Symptoms, report};
use shardlab::data::Sampler;
use shardlab::model::Gpt;
use shardlab::parallel::{Averaged, Ddp};
use shardlab::train::{AdamW, Config, clip_scale, global_norm};

/// Trains with the library's `Ddp`, and watches it: what is said about the run is said here, and
/// the step is [`Replica::step`].
pub fn train(
    args: &Args,
    gpt: &Gpt,
    evaluator: &Evaluator,
    journal: &mut Journal,
) -> Result<Symptoms> {
    let Evaluator { config, corpus, comm, .. } = *evaluator;
    let text = &corpus.train[..];
    // Rank 0's weights to every rank; gradients will be averaged.
    let ddp = Ddp::new(&gpt.params, comm)?;
    let Broken { ddp, data_rank } =
        kit::apply_break(args.broken, comm, ddp, &gpt.params, config.seed_of(comm.rank()))?;
    ddp.overlap(!args.no_overlap);
    match args.all_reduce {
        Some(algorithm) => {
            ddp.all_reduce_by(algorithm);
            let place = [comm.rank(), comm.size()];
            journal.expect(report::all_reduced_by(algorithm, &ddp.buckets(), place)?);
        }
        None => {
            journal.expect_on_link(args.run.comm.link, &ddp.buckets());
            journal.expect(report::all_reduced(gpt.params.numel(), comm.size()));
        }
    }
    // Each rank draws its own sequences, unless --break says otherwise.
    let sampler = config.sampler(data_rank);
    let mut replica = Replica {
        config,
        text,
        gpt,
        sampler,
        ddp,
        adamw: AdamW::new(config.adamw, &gpt.params),
    };
    let mut symptoms = Symptoms::of(args.broken);
    evaluator.run(gpt, 0, journal)?;
    symptoms.look(comm, &gpt.params, 0)?;

    for step in 0..config.steps {
        let mut clock = Clock::start();
        let before = comm.traffic();
        let (loss, grad_norm, averaged) = replica.step(step, &mut clock)?;
        let sent = comm.traffic() - before;

        for micro in 0..config.grad_accum {
            symptoms.draw(sampler.batch(text, step, micro).numbers());
        }
        let lr = config.schedule.at(step);
        let step = step + 1;
        journal.step(StepOutcome { step, loss, grad_norm, lr }, &clock, sent, &averaged)?;
        if evaluator.eval.due.after(step) {
            evaluator.run(gpt, step, journal)?;
        }
        symptoms.look(comm, &gpt.params, step)?;
    }
    Ok(symptoms)
}

/// One rank's replica: a whole model, and its own part of the data.
struct Replica<'a> {
    config: &'a Config,
    text: &'a [u32],
    gpt: &'a Gpt,
    sampler: Sampler,
    ddp: Ddp,
    adamw: AdamW,
}

impl Replica<'_> {
    // ANCHOR: step
    /// Every rank takes this step. It returns the rank's loss, the gradients' norm, and the time of
    /// each all-reduce.
    fn step(&mut self, step: usize, clock: &mut Clock) -> Result<(f64, f64, Vec<Averaged>)> {
        let Replica { config, text, gpt, sampler, ddp, adamw } = self;
        let mut mean = 0.0;
        gpt.params.zero_gradients();
        for micro in 0..config.grad_accum {
            // This rank's own sequences.
            let batch = clock.time(Data, || sampler.batch(text, step, micro));
            let loss =
                clock.time(Forward, || gpt.loss(&batch, &config.pass(step, &batch.sequences)))?;
            let share = (loss / config.grad_accum as f64)?; // the shares' gradients add up
            mean += f64::from(share.to_scalar::<f32>()?);
            ddp.synchronise(micro + 1 == config.grad_accum); // average in the last micro-step only
            clock.time(Backward, || share.backward())?; // averages each complete bucket
        }
        // Now all ranks have the same gradients.
        let averaged = clock.time(Backward, || ddp.finish())?;
        let norm = global_norm(&gpt.params.gradients());
        let scale = clip_scale(norm, config.clip)?;
        // So they take the same step.
        clock.time(Optimizer, || adamw.step(&gpt.params, config.schedule.at(step), scale))?;
        Ok((mean, norm, averaged))
    }
    // ANCHOR_END: step
}
