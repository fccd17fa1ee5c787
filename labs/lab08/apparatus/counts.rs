//! Counts, by hashes, the micro-batches that a training drew and learned from.
//!
//! Each rank knows the hash of every micro-batch of its data. So it can tell which of them a step
//! trained on, whatever the way to skip says about it.

use super::Job;
use super::training::{Run, trained_on};
use crate::skipping::{Counters, StepSize, hash};
use anyhow::Result;
use kit::Checks;
use shardlab::comm::Comm;
use std::collections::HashMap;

/// The figures of one training, from all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Steps that changed the weights.
    pub taken: usize,
    /// Bad micro-batches per rank that the weights learned from.
    pub bad: usize,
    /// The first step that drew other micro-batches than a run that skips nothing; 0 if there is
    /// none.
    pub moved: usize,
    /// The first micro-batch that step `after` of `counts` trained on, counted from 1; 0 if it
    /// was not taken.
    pub next: usize,
    /// Whether all ranks have the same figures, and skipped the same steps.
    pub agree: bool,
    pub counters: Counters,
}

/// Counts what `run` drew, and what step `after` trained on. All ranks call it.
pub fn counts(job: &Job, comm: &Comm, run: &Run, after: usize) -> Result<Counts> {
    let config = &job.config;
    let accumulation = job.config.grad_accum;
    let sampler = config.sampler(comm.rank());
    let drawn = |n| sampler.nth(&job.corpus.train, n, accumulation);
    let batch = |n| job.poison.apply(comm.rank(), n, drawn(n));
    let hashes: Vec<String> = (0..run.counters.drawn).map(|n| hash(&batch(n))).collect();
    let numbers: HashMap<&String, usize> = hashes.iter().zip(0..).collect();
    // In a short text, micro-batches can be equal.
    let unique = numbers.len() == hashes.len();
    let number = |hash: &String| numbers.get(hash).copied();
    let mut taken = 0;
    let mut bad = 0;
    let mut moved = 0;
    let mut next = 0;
    for step in &run.steps {
        let learned = trained_on(step, accumulation);
        let own = (step.step - 1) * accumulation..step.step * accumulation;
        if moved == 0 && !step.drawn.iter().map(Some).eq(own.map(|n| hashes.get(n))) {
            moved = step.step;
        }
        taken += usize::from(step.outcome.loss().is_some());
        let numbers = learned.iter().filter_map(number);
        bad += numbers.filter(|n| job.poison.draws.contains(n)).count();
        if step.step == after {
            next = learned.first().and_then(number).map_or(0, |n| n + 1);
        }
    }
    let mut mine = vec![bad as u64, moved as u64, if unique { next as u64 } else { 0 }];
    mine.extend(run.steps.iter().map(|step| u64::from(step.outcome.loss().is_some())));
    // A rank that skipped alone has made as many steps.
    let agree = comm.gathered(&mine)?.chunks_exact(mine.len()).all(|rank| rank == mine);
    Ok(Counts {
        taken,
        bad,
        moved,
        next,
        agree: !comm.any(!agree)?,
        counters: run.counters,
    })
}

impl Counts {
    /// The checks of one training. `skips`: it should leave the bad batches out.
    pub fn check(&self, checks: &mut Checks, job: &Job, skips: bool) {
        let steps = self.counters.global_steps;
        let config = &job.config;
        let skipped = format!("{} of {steps}", steps - self.taken);
        checks.check(
            self.agree,
            "all ranks skipped the same steps",
            &skipped,
            "ranks skipped different steps",
        );
        let bad = job.poison.steps(config).count() * config.grad_accum;
        if skips && bad > 0 {
            let result = format!("{} of {bad} per rank", self.bad);
            let otherwise = "the weights learned from bad batches";
            checks.check(
                self.bad == 0,
                "no bad micro-batch reached the weights",
                &result,
                otherwise,
            );
        }
        let (found, otherwise) = match self.moved {
            0 => (format!("{} per rank", self.counters.drawn), String::new()),
            step => (
                format!("not from step {step} on"),
                format!("step {step} drew micro-batches of a different step"),
            ),
        };
        checks.check(self.moved == 0, "each step drew its own micro-batches", &found, &otherwise);
        let size = StepSize::of(config);
        let expected = Counters {
            global_steps: steps,
            skipped_steps: steps - self.taken,
            micro_steps: steps * size.accumulation,
            global_samples: steps * size.samples,
            schedule: steps,
            drawn: steps * size.accumulation,
        };
        let result = format!("skipped_steps={}", self.counters.skipped_steps);
        checks.check(
            self.counters == expected,
            "skipped steps count in every counter",
            &result,
            "a counter is wrong",
        );
    }
}
