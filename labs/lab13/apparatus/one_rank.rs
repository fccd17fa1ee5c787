//! The same training on one rank that holds all experts.

use super::Job;
use super::job::{biases, params};
use anyhow::Result;
use kit::parity::stored_gradients;
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::parallel::Strategy;
use shardlab::train::{Config, Setup};
use std::collections::HashMap;

/// What one rank has trained.
#[derive(Clone, Default)]
pub struct OneRank {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    /// The balancing loss, without its coefficient.
    pub balancing: Vec<f64>,
    /// The first step's gradients, by parameter.
    pub gradients: HashMap<String, Vec<f32>>,
    /// The biases by which routers select, after the last step.
    pub biases: Vec<f32>,
}

impl OneRank {
    /// Takes the first `steps` steps of a job on one rank. Its micro-batches have the sequences of
    /// all replicas: a load that is counted over all ranks is that of such a batch.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn train(job: &Job, steps: usize) -> Result<OneRank> {
        let one = Config { ranks: 1, ..job.config.clone() };
        let setup = job.with_biases(Setup::new(&one, &Strategy::SINGLE));
        let mut alone = setup.begin(&Comm::alone())?;
        let mut found = OneRank::default();
        for step in 0..steps {
            let all = (0..job.config.grad_accum).map(|micro| {
                let replicas = 0..job.config.ranks;
                let drawn: Vec<Batch> = replicas
                    .map(|replica| job.config.sampler(replica).batch(job.text, step, micro))
                    .collect();
                Batch::concat(&drawn)
            });
            let passes = alone.with_passes(step, all.collect())?;
            let ran = alone.passes(&passes)?;
            alone.average()?;
            if step == 0 {
                let gradients = stored_gradients(params(&alone));
                let specs = params(&alone).specs().iter();
                found.gradients = specs
                    .map(|spec| (spec.name.clone(), gradients[spec.range()].to_vec()))
                    .collect();
            }
            let balances = passes.iter().filter_map(|(_, pass)| pass.balance.as_ref());
            let balancing: f64 = balances.map(|balance| balance.loss()).sum();
            found.balancing.push(balancing / passes.len() as f64);
            found.losses.push(alone.loss(&ran)?);
            found.norms.push(alone.update(step)?);
        }
        found.biases = biases(&mut alone)?;
        Ok(found)
    }
}
