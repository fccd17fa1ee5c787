//! Trains the same few steps in two ways and compares them: in parallel by N ranks, and serially by
//! one rank.

use crate::show::{Screen, significant};
use anyhow::Result;
use half::bf16;
use shardlab::comm::algorithms::Algorithm;
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::model::Gpt;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::stored::{Precision, narrow, widen};
use shardlab::tensor::{Params, Tensor};
use shardlab::train::{Config, DataParallel, Diverged, Engine, TrainedStep, Trainer};
use std::sync::Arc;

/// A model in training. It can play any rank's role in a step.
pub struct Replica<'a> {
    params: Arc<Params>,
    parallel: Parallel,
    clip: f64,
    lr: Box<dyn Fn(usize) -> f64 + 'a>,
    loss: Box<dyn Fn(usize, usize) -> Result<Tensor> + 'a>,
}

/// What averages the gradients and updates the parameters: the library's engines that are compared
/// with one rank.
pub enum Parallel {
    Ddp(DataParallel),
    Zero(Box<Zero>),
}

impl Parallel {
    fn engine(&mut self) -> &mut dyn Engine {
        match self {
            Parallel::Ddp(ddp) => ddp,
            Parallel::Zero(zero) => &mut **zero,
        }
    }
}

impl<'a> Replica<'a> {
    /// `lr` is a function of the step, and `loss` of a rank and the step; steps count from 0.
    /// `clip` is the largest global norm of gradients, or 0.
    pub fn new(
        params: &Arc<Params>,
        parallel: Parallel,
        clip: f64,
        lr: impl Fn(usize) -> f64 + 'a,
        loss: impl Fn(usize, usize) -> Result<Tensor> + 'a,
    ) -> Replica<'a> {
        Replica {
            params: params.clone(),
            parallel,
            clip,
            lr: Box::new(lr),
            loss: Box::new(loss),
        }
    }

    /// A GPT on one of `comm`'s ranks, trained with DDP. Each rank has initial weights of its own,
    /// which rank 0's replace.
    pub fn ddp(config: &'a Config, text: &'a [u32], comm: &Comm) -> Result<Replica<'a>> {
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(config.seed_of(comm.rank()));
        let parallel = Parallel::Ddp(DataParallel::new(&gpt.params, comm, config.adamw)?);
        Ok(Replica::of_gpt(config, text, gpt, parallel))
    }

    /// Averages gradients by an algorithm's rounds, if one is given. ZeRO has no all-reduce to
    /// replace.
    pub fn all_reduce_by(self, algorithm: Option<Algorithm>) -> Replica<'a> {
        if let (Parallel::Ddp(ddp), Some(algorithm)) = (&self.parallel, algorithm) {
            ddp.ddp().all_reduce_by(algorithm);
        }
        self
    }

    /// The same with ZeRO.
    pub fn zero(
        config: &'a Config,
        text: &'a [u32],
        comm: &Comm,
        zero: ZeroConfig,
    ) -> Result<Replica<'a>> {
        let gpt = Gpt::new(&config.shape)?;
        let zero = Zero::init(&gpt.params, comm, zero, config.seed_of(comm.rank()))?;
        Ok(Replica::of_gpt(config, text, gpt, Parallel::Zero(Box::new(zero))))
    }

    /// A GPT on one rank that holds everything, in any precision.
    pub fn alone(config: &'a Config, text: &'a [u32], precision: Precision) -> Result<Replica<'a>> {
        let zero = ZeroConfig::new(Stage::Ddp, precision, config.adamw);
        Replica::zero(config, text, &Comm::alone(), zero)
    }

    fn of_gpt(config: &'a Config, text: &'a [u32], gpt: Gpt, parallel: Parallel) -> Replica<'a> {
        let params = gpt.params.clone();
        let lr = |step| config.schedule.at(step);
        let loss = move |rank, step| loss(&gpt, config, text, rank, step, 0);
        Replica::new(&params, parallel, config.clip, lr, loss)
    }

    pub fn params(&self) -> &Arc<Params> {
        &self.params
    }

    /// Takes a step as rank `rank`.
    fn step(&mut self, rank: usize, step: usize) -> Result<TrainedStep> {
        let lr = (self.lr)(step);
        let loss = &self.loss;
        Trainer::new(self.parallel.engine(), 1, self.clip)
            .step(lr, |_| loss(rank, step))
            .map_err(|error| Diverged::at(step + 1, error))
    }

    /// The first half of a step as rank `rank`. The gradients are then those of its batch. Returns
    /// its loss.
    fn passes(&mut self, rank: usize, step: usize) -> Result<f64> {
        let loss = &self.loss;
        let loss =
            Trainer::new(self.parallel.engine(), 1, self.clip).passes(|_| loss(rank, step))?;
        self.parallel.engine().finish()?;
        Ok(loss)
    }

    /// The second half of a step, with the current gradients. Returns their norm.
    fn update(&mut self, step: usize) -> Result<f64> {
        let lr = (self.lr)(step);
        let norm = self.parallel.engine().step(lr, self.clip);
        norm.map_err(|error| Diverged::at(step + 1, error))
    }

    /// The gradients in f32, in the flat layout.
    fn gradients(&self) -> Vec<f32> {
        if let Ok(gradients) = self.params.whole_gradients() {
            return gradients.clone();
        }
        let stored = self.params.stored_gradients::<bf16>();
        let mut gradients = vec![0.0; stored.len()];
        widen(&stored, &mut gradients);
        gradients
    }

    /// Replaces the gradients. Rounds them if they are stored in bf16.
    fn set_gradients(&self, gradients: &[f32]) {
        if let Ok(mut stored) = self.params.whole_gradients() {
            stored.copy_from_slice(gradients);
        } else {
            narrow(gradients, &mut self.params.stored_gradients::<bf16>());
        }
    }

    /// Ends the training. Returns all parameters.
    fn values(self) -> Result<Vec<f32>> {
        if let Parallel::Zero(zero) = self.parallel {
            zero.leave()?;
        }
        Ok(self.params.whole()?.clone())
    }
}

/// The loss of a GPT on a micro-batch of rank `rank`'s `step` (from 0).
pub fn loss(
    gpt: &Gpt,
    config: &Config,
    text: &[u32],
    rank: usize,
    step: usize,
    micro: usize,
) -> Result<Tensor> {
    let batch = config.sampler(rank).batch(text, step, micro);
    Ok(gpt.loss(&batch, &config.pass(step, &batch.sequences))?)
}

/// The result of a short training: the loss and the gradients' norm of every step, and all
/// parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub values: Vec<f32>,
}

/// Trains in parallel. All ranks of `comm` call it. The losses are this rank's own.
pub fn parallel(comm: &Comm, mut replica: Replica, steps: usize) -> Result<Trained> {
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let taken = replica.step(comm.rank(), step)?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
    }
    Ok(Trained { losses, norms, values: replica.values()? })
}

// ANCHOR: serial
/// Trains serially: one rank processes the batches of `ranks` ranks one after the other. It adds up
/// their complete gradients in rank order, and divides. N ranks compute the same sums in the same
/// order, so the bits are the same.
pub fn serial(mut replica: Replica, ranks: usize, steps: usize) -> Result<Trained> {
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let mut loss = replica.passes(0, step)?;
        let mut sum = replica.gradients();
        for rank in 1..ranks {
            loss += replica.passes(rank, step)?;
            for (sum, gradient) in sum.iter_mut().zip(replica.gradients()) {
                *sum += gradient;
            }
        }
        for sum in &mut sum {
            *sum /= ranks as f32;
        }
        replica.set_gradients(&sum);
        losses.push(loss / ranks as f64);
        norms.push(replica.update(step)?);
    }
    Ok(Trained { losses, norms, values: replica.values()? })
}
// ANCHOR_END: serial

// ANCHOR: accumulated
/// Trains serially, with one sum of gradients per step: one rank takes the micro-batches of all
/// replicas one after the other. The same mathematics as on `config.ranks` replicas, with sums in a
/// different order.
pub fn accumulated(config: &Config, text: &[u32], steps: usize) -> Result<Trained> {
    let gpt = Gpt::new(&config.shape)?;
    gpt.params.allocate(config.seed);
    let mut alone = DataParallel::new(&gpt.params, &Comm::alone(), config.adamw)?;
    let mut trainer = Trainer::new(&mut alone, config.ranks * config.grad_accum, config.clip);
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let taken = trainer.step(config.schedule.at(step), |i| {
            let replica = i / config.grad_accum;
            let micro = i % config.grad_accum;
            loss(&gpt, config, text, replica, step, micro)
        });
        let taken = taken.map_err(|error| Diverged::at(step + 1, error))?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
    }
    let values = gpt.params.values().clone();
    Ok(Trained { losses, norms, values })
}
// ANCHOR_END: accumulated

/// Compares a parallel training with a serial one, which rank 0 of `world` runs here. Rank 0 prints
/// the check; every rank returns whether it holds. `data` are the ranks that drew different
/// batches: the losses' mean is over them.
///
/// With `values`, parameters must be bitwise equal if sums are added in rank order: in one process,
/// and with two ranks on any transport. An MPI library adds three or more numbers in its own order.
/// Then, and without `values`, the losses must agree within `bound`, such as
/// [`Precision::loss_bound`].
pub fn compare(
    world: &Comm,
    data: &Comm,
    screen: &Screen,
    bound: f64,
    losses: &[f64],
    values: Option<&[f32]>,
    serial: impl FnOnce() -> Result<Trained>,
) -> Result<bool> {
    let mut losses = losses.to_vec();
    data.all_reduce(&mut losses, Reduce::Mean)?;
    let mut holds = [0u8];
    if world.rank() == 0 {
        let serial = serial()?;
        let (sound, result) = match values {
            Some(values) => judge(&losses, values, &serial, world.adds_in_rank_order(), bound),
            None => judge_losses(&losses, &serial.losses, bound),
        };
        let ranks = if world.size() == 1 { "rank" } else { "ranks" };
        let what = format!("{} steps, {} {ranks} compared with 1 rank", losses.len(), world.size());
        screen.say(format!("\n{}\n", screen.check(sound, &what, &result)));
        holds = [sound.into()];
    }
    world.broadcast(&mut holds, 0)?;
    Ok(holds[0] == 1)
}

/// Whether a parallel training, with the ranks' mean losses, is the serial one, and how far apart
/// they are.
fn judge(
    losses: &[f64],
    values: &[f32],
    serial: &Trained,
    in_rank_order: bool,
    bound: f64,
) -> (bool, String) {
    let apart = largest_difference(losses, &serial.losses);
    if apart < bound && same_bits(values, &serial.values) {
        return (true, "bitwise equal".to_string());
    }
    let difference = largest_difference(values, &serial.values);
    if difference.is_infinite() {
        // The losses can be right, if only the last step has ruined parameters.
        (false, "a parameter is not finite, or missing".to_string())
    } else if !in_rank_order {
        (apart < bound, format!("losses within {apart:.0e} (MPI adds in its own order)"))
    } else if difference > 0.0 {
        (false, format!("off by {difference:.1e}"))
    } else {
        (false, format!("losses off by {apart:.1e}"))
    }
}

/// Whether losses are one rank's, and how far apart they are.
fn judge_losses(losses: &[f64], one: &[f64], bound: f64) -> (bool, String) {
    let apart = largest_difference(losses, one);
    let result = match apart {
        0.0 => "equal".to_string(),
        f64::INFINITY => "a loss is not finite, or missing".to_string(),
        _ => format!("losses within {}", significant(apart, 1)),
    };
    (apart < bound, result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;

    #[test]
    fn nan_and_missing_elements_are_no_parity() {
        let judge = |parallel: &Trained, serial: &Trained, in_rank_order, bound| {
            judge(&parallel.losses, &parallel.values, serial, in_rank_order, bound)
        };
        let good = Trained {
            losses: vec![3.0, 2.0, 1.0],
            norms: vec![1.0; 3],
            values: vec![0.5, -2.0, 1.0],
        };
        assert_eq!(judge(&good, &good, true, 1e-5), (true, "bitwise equal".to_string()));
        let mut rounded = good.clone();
        (rounded.losses[2], rounded.values[2]) = (1.000001, 1.01);
        assert!(judge(&rounded, &good, false, 1e-5).0);
        assert_eq!(judge(&rounded, &good, true, 1e-5), (false, "off by 1.0e-2".to_string()));
        for in_rank_order in [true, false] {
            let refuses = |bad: &Trained| {
                let [found, expected] = [
                    judge(bad, &good, in_rank_order, 1e-5),
                    judge(&good, bad, in_rank_order, 1e-5),
                ];
                assert!(!found.0 && !expected.0, "{bad:?}: {found:?} {expected:?}");
            };
            for losses in damaged(&good.losses) {
                refuses(&Trained { losses: losses.clone(), ..good.clone() });
                // As over MPI, where parameters are rounded in a different order.
                refuses(&Trained { losses, ..rounded.clone() });
            }
            for values in damaged(&[0.5, -2.0, 1.0]) {
                let values = values.iter().map(|x| *x as f32).collect();
                refuses(&Trained { values, ..good.clone() });
            }
        }
    }

    #[test]
    fn nan_and_missing_losses_are_not_one_ranks() {
        let good = [3.0, 2.0, 1.0];
        assert_eq!(judge_losses(&good, &good, 1e-5), (true, "equal".to_string()));
        assert_eq!(
            judge_losses(&[3.0, 2.0, 1.000002], &good, 1e-5),
            (true, "losses within 2e-6".to_string())
        );
        for bad in damaged(&good) {
            assert!(
                !judge_losses(&bad, &good, 1e-5).0 && !judge_losses(&good, &bad, 1e-5).0,
                "{bad:?}"
            );
        }
    }
}
