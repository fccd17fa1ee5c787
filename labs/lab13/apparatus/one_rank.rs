//! The same training on one rank that holds all experts.

use super::Job;
use super::job::{biases, params};
use super::load::{LAST, largest_share, relative};
use anyhow::{Context, Result};
use kit::parity::{by_name, rounds, stored_gradients, worst};
use kit::steady::{again, push_off};
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
    /// Choices that its routers would have made otherwise than they had to, by step.
    pub others: Vec<u64>,
    /// What roundings become, step by step; nothing where none are to bf16.
    pub drift: Vec<Drift>,
}

/// What roundings have become at a step, measured: the most by which one rank's loss, norm and
/// balancing loss differ from its own, each as a part of it, and the choices that differ, if all
/// gradients are off by as much as right ones may be.
///
/// No constant can say it. At the lab's own rate losses are off by 1e-5 after five steps, and with
/// `--lr 0.1 --warmup 0` by 0.1.
#[derive(Clone, Copy, Default)]
pub struct Drift {
    pub loss: f64,
    pub norm: f64,
    pub balancing: f64,
    pub others: u64,
}

impl Drift {
    /// Roundings alone can end the training.
    pub const WITHOUT_END: Drift = Drift {
        loss: f64::INFINITY,
        norm: f64::INFINITY,
        balancing: f64::INFINITY,
        others: u64::MAX,
    };

    fn between(one: &OneRank, off: &OneRank, step: usize) -> Drift {
        Drift {
            loss: relative(off.losses[step], one.losses[step]),
            norm: relative(off.norms[step], one.norms[step]),
            balancing: relative(off.balancing[step], one.balancing[step]),
            others: off.others[step],
        }
    }

    fn or_more(self, other: Drift) -> Drift {
        Drift {
            loss: worst([self.loss, other.loss]),
            norm: worst([self.norm, other.norm]),
            balancing: worst([self.balancing, other.balancing]),
            others: self.others.max(other.others),
        }
    }
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
    /// Takes the first `steps` steps of a job on one rank. Where something rounds to bf16, takes
    /// them again to see what roundings become.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn train(job: &Job, steps: usize) -> Result<OneRank> {
        let mut one = OneRank::take(job, steps, None)?;
        if rounds(job.config) == Precision::F32 {
            return Ok(one);
        }
        let off = again(|sample| OneRank::take(job, steps, Some((&one, sample))))?;
        let drift = |step: usize| {
            let of = |off: &Option<OneRank>| {
                off.as_ref().map_or(Drift::WITHOUT_END, |off| Drift::between(&one, off, step))
            };
            off.iter().map(of).fold(Drift::default(), Drift::or_more)
        };
        one.drift = (0..steps).map(drift).collect();
        Ok(one)
    }

    /// The largest share of an expert, at the end of a job that one rank trains.
    ///
    /// # Errors
    /// If a pass fails.
    pub fn last_share(job: &Job) -> Result<f64> {
        let one = OneRank::take(job, job.config.steps, None)?;
        let number = job.config.shape.experts.map_or(0, |experts| experts.count);
        let mut copies: BTreeMap<&String, Vec<u64>> = BTreeMap::new();
        for choices in one.choices.iter().rev().take(LAST).flatten() {
            for (layer, chosen) in &choices.chosen {
                let sums = copies.entry(layer).or_insert_with(|| vec![0; number]);
                chosen.iter().for_each(|&expert| sums[expert as usize] += 1);
            }
        }
        let copies: Vec<Vec<u64>> = copies.into_values().collect();
        Ok(largest_share(&copies, number))
    }

    /// Takes steps whose micro-batches have the sequences of all replicas: a load that is counted
    /// over all ranks is that of such a batch. Beside another training, routers choose as its have,
    /// and gradients are off, in each sample otherwise.
    fn take(job: &Job, steps: usize, beside: Option<(&OneRank, u64)>) -> Result<OneRank> {
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
            let balances =
                || passes.iter().filter_map(|(b, pass)| Some((b, pass.balance.as_ref()?)));
            if let Some((one, _)) = beside {
                for ((_, balance), choices) in balances().zip(&one.choices[step]) {
                    balance.replay(choices.chosen.clone());
                }
            }
            let ran = alone.passes(&passes)?;
            alone.average()?;
            if let Some((_, i)) = beside {
                push_off(&alone, i, step);
            }
            if step == 0 {
                let params = params(&alone);
                found.gradients = by_name(params, &stored_gradients(params));
            }
            let balancing: f64 = balances().map(|(_, balance)| balance.loss()).sum();
            found.balancing.push(balancing / passes.len() as f64);
            found.others.push(balances().map(|(_, balance)| balance.others()).sum());
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
