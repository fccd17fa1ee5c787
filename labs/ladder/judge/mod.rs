//! What the checks of all rungs share: the reader's program on real ranks, beside the program for
//! one rank.
//!
//! A check begins with [`Judge::alone`], [`Judge::parts`], [`Judge::gradients`] and
//! [`Judge::weights`]. The rung's own claims follow, and [`Judge::score`] comes last.
//!
//! Adam divides a gradient by its own size. So weights hardly tell a sum from a mean, and what the
//! optimizer got is compared, too.
//!
//! Reading order: this file (a rung's jobs and runs), `expected.rs` (what one rank computes),
//! `parts.rs`, `gradients.rs` with `seen.rs` (what the optimizer got in place of the mean),
//! `weights.rs`, `scores.rs`, `collectives.rs` (what a program sends, and when), `numbers.rs`.

mod collectives;
mod expected;
mod gradients;
mod numbers;
mod parts;
mod scores;
mod seen;
mod weights;

pub use crate::passes::{Whole, whole_gradients};
use crate::rungs::Program;
use crate::{Job, Returns, Run, Rung, run};
use anyhow::{Context, Result};
pub use collectives::{Collective, collectives, waits_for_the_last_first};
use kit::check::Evidence;
use std::sync::{Arc, Mutex, PoisonError};

/// The reader's program of a rung, and its runs.
pub struct Judge {
    name: &'static str,
    train: Program,
    runs: Mutex<Vec<(Job, Arc<Run>)>>,
}

/// How far a rung's numbers may be from those of one rank.
#[derive(Clone, Copy)]
struct Bounds {
    /// Of a loss, as a share.
    loss: f64,
    /// Of a gradient, as a share of its size and of the size of those beside it.
    gradient: f32,
    /// Of a weight, and of all weights on average.
    weight: f32,
    weights: f64,
}

const DIGITS: &str = "Only last digits differ: the same numbers, added in another order. One rank adds up the parts from 0 to the last.";

impl Judge {
    pub const fn new(name: &'static str, train: Program) -> Judge {
        Judge { name, train, runs: Mutex::new(Vec::new()) }
    }

    /// # Errors
    /// If there is no such rung.
    pub fn rung(&self) -> Result<&'static Rung> {
        Rung::of(self.name).with_context(|| format!("no rung is named {}", self.name))
    }

    /// The rung's job on `ranks` ranks. A rank has as many parts of the batch as in the rung
    /// itself.
    ///
    /// # Errors
    /// If there is no such rung.
    pub fn job(&self, ranks: usize) -> Result<Job> {
        let job = self.rung()?.job;
        let tensor = job.tensor.min(ranks);
        let shared = job.parts * job.tensor == job.ranks;
        Ok(Job {
            ranks,
            tensor,
            parts: if shared { ranks / tensor } else { job.parts },
            steps: job.steps,
        })
    }

    /// The reader's program on a job. It runs once for each job.
    ///
    /// # Errors
    /// Those of the program.
    pub fn run(&self, job: Job) -> Result<Arc<Run>> {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, run)) = runs.iter().find(|run| run.0 == job) {
            return Ok(run.clone());
        }
        let run = Arc::new(run(job, self.train)?);
        runs.push((job, run.clone()));
        Ok(run)
    }

    /// On how many ranks the optimizer has a parameter.
    fn copies(&self, job: Job) -> Result<usize> {
        let rung = self.rung()?;
        Ok(match rung.returns {
            Returns::Whole if rung.name != "ladder-zero" => job.ranks,
            Returns::Units => job.ranks / job.tensor,
            _ => 1,
        })
    }

    /// Tensor ranks add up summands, so they round in another order than one rank. Adam makes a
    /// step of full length of a gradient of any size: where a gradient is almost 0, rounding
    /// decides about the sign of a step. So a few weights may differ by two steps' length each
    /// time, while all weights together hardly differ. All other rungs add up in the order of one
    /// rank.
    fn bounds(&self) -> Result<Bounds> {
        Ok(match self.rung()?.returns {
            Returns::Units => Bounds { loss: 1e-4, gradient: 1e-2, weight: 0.02, weights: 1e-4 },
            _ => Bounds { loss: 0.0, gradient: 1e-5, weight: 0.0, weights: 0.0 },
        })
    }

    /// On one rank it is the program that is given.
    ///
    /// # Errors
    /// Those of the program.
    pub fn alone(&self, evidence: &mut Evidence) -> Result<()> {
        let job = self.job(1)?;
        self.look_at_parts(evidence, job)?;
        if evidence.agrees() {
            self.look_at_gradients(evidence, job)?;
        }
        if evidence.agrees() {
            self.look_at_weights(evidence, job)?;
        }
        Ok(())
    }

    /// Each part of each step's batch is computed once.
    ///
    /// # Errors
    /// Those of the program.
    pub fn parts(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_parts(evidence, self.job(ranks)?)
    }

    /// The optimizer gets the mean gradients.
    ///
    /// # Errors
    /// Those of the program.
    pub fn gradients(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_gradients(evidence, self.job(ranks)?)
    }

    /// The ranks have the model that one rank trains.
    ///
    /// # Errors
    /// Those of the program.
    pub fn weights(&self, evidence: &mut Evidence, ranks: usize) -> Result<()> {
        self.look_at_weights(evidence, self.job(ranks)?)
    }
}

/// The program for one rank, on the same parts.
fn on_one_rank(job: Job) -> Result<Arc<Run>> {
    static ONE: Judge = Judge::new("", crate::one_rank::train);
    ONE.run(Job { ranks: 1, tensor: 1, ..job })
}
