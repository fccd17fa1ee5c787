//! The same training on one rank that holds all experts.

use super::Job;
use super::job::{biases, params};
use anyhow::{Context, Result};
use kit::parity::{by_name, rounds, stored_gradients};
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::model::{Balance, Pass};
use shardlab::parallel::Strategy;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Setup, Training};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    /// What its routers have chosen: by step and micro-batch.
    pub choices: Vec<Vec<Choices>>,
}

/// What routers have chosen in one pass.
#[derive(Clone)]
pub struct Choices {
    /// The sequences' numbers in the step's global batch.
    sequences: Arc<[u64]>,
    /// The experts of each token, by layer.
    chosen: BTreeMap<String, Vec<u32>>,
}

impl Choices {
    fn of(batch: &Batch, balance: &Balance) -> Choices {
        let chosen = balance.loads().into_iter().map(|(layer, load)| (layer, load.chosen));
        Choices { sequences: batch.sequences.clone(), chosen: chosen.collect() }
    }
}

/// Makes the routers of a step's `passes` choose as one rank's have, where gradients or products
/// are rounded: a token near a tie then chooses another expert, and ranks train another model.
///
/// # Errors
/// If a pass cannot be made.
pub fn replay(
    job: &Job,
    training: &Training,
    step: usize,
    one: &OneRank,
    passes: &[(Batch, Pass)],
) -> Result<()> {
    let Some(choices) = one.choices.get(step).filter(|_| rounds(job.config) == Precision::Bf16)
    else {
        return Ok(());
    };
    // The numbers of one rank's tokens in place of tokens: so this rank's are found, whichever
    // parts of sequences it has.
    let numbered = choices.iter().enumerate().map(|(micro, choices)| {
        let mut batch = training.sampler().batch(job.text, step, micro);
        let length = batch.length;
        for (i, sequence) in batch.sequences.iter().enumerate() {
            let place = choices.sequences.iter().position(|one| one == sequence);
            let first = place.context("one rank has another sequence")? * length;
            let numbers = (first as u32)..;
            batch.inputs[i * length..][..length]
                .iter_mut()
                .zip(numbers)
                .for_each(|(token, number)| *token = number);
        }
        Ok(batch)
    });
    let numbered = training.with_passes(step, numbered.collect::<Result<_>>()?)?;
    let each = job.config.shape.top_k();
    for (((tokens, _), (_, pass)), choices) in numbered.iter().zip(passes).zip(choices) {
        let mine = |all: &Vec<u32>| {
            let of = |&token: &u32| all[token as usize * each..][..each].to_vec();
            tokens.inputs.iter().flat_map(of).collect()
        };
        let mine = choices.chosen.iter().map(|(layer, all)| (layer.clone(), mine(all)));
        if let Some(balance) = &pass.balance {
            balance.replay(mine.collect());
        }
    }
    Ok(())
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
                let params = params(&alone);
                found.gradients = by_name(params, &stored_gradients(params));
            }
            let balances =
                || passes.iter().filter_map(|(b, pass)| Some((b, pass.balance.as_ref()?)));
            let balancing: f64 = balances().map(|(_, balance)| balance.loss()).sum();
            found.balancing.push(balancing / passes.len() as f64);
            found
                .choices
                .push(balances().map(|(b, balance)| Choices::of(b, balance)).collect());
            found.losses.push(alone.loss(&ran)?);
            found.norms.push(alone.update(step)?);
        }
        found.biases = biases(&mut alone)?;
        Ok(found)
    }
}
