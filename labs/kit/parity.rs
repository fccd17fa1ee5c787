//! Trains the same few steps in two ways and compares them: in parallel by N ranks, and serially by one rank.

use crate::show::Screen;
use anyhow::Result;
use half::bf16;
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::model::Gpt;
use shardlab::parallel::Ddp;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::Params;
use shardlab::tensor::stored::{Precision, narrow, widen};
use shardlab::train::{AdamW, Config, Diverged, clip_scale, global_norm};
use std::sync::Arc;

/// A model with its data and its optimizer. It can play any rank's role in a step.
pub trait Replica {
    fn params(&self) -> &Arc<Params>;

    /// Begins a step, or one rank's turn in it: sets gradients to zero.
    fn begin(&mut self) -> Result<()> {
        self.params().zero_gradients();
        Ok(())
    }

    /// Runs the forward and backward pass over rank `rank`'s batch of `step` (from 0). Adds to the gradients; returns
    /// the loss.
    fn backward(&mut self, rank: usize, step: usize) -> Result<f64>;

    /// Takes the optimizer's step, with the current gradients.
    fn update(&mut self, step: usize) -> Result<()>;

    fn gradients(&self) -> Vec<f32> {
        self.params().gradients().clone()
    }

    fn set_gradients(&mut self, gradients: &[f32]) {
        self.params().gradients().copy_from_slice(gradients);
    }

    /// Ends the training. Returns all parameters.
    fn values(self) -> Result<Vec<f32>>
    where
        Self: Sized,
    {
        Ok(self.params().values().clone())
    }
}

/// The result of a short training: the loss of every step, and all parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub values: Vec<f32>,
}

impl Trained {
    /// The largest difference of two parameters. Infinite if a parameter is NaN or missing.
    pub fn largest_difference(&self, other: &Trained) -> f64 {
        largest_difference(&self.values, &other.values)
    }
}

/// Trains in parallel with DDP. All ranks of `comm` call it; rank 0's initial weights replace those of all others. The
/// losses are this rank's own.
pub fn parallel(comm: &Comm, replica: impl Replica, steps: usize) -> Result<Trained> {
    let ddp = Ddp::new(replica.params(), comm)?;
    train(comm.rank(), replica, steps, || ddp.finish().map(drop))
}

/// [`parallel`] with [`Zero`], in the stage of the replica's configuration.
pub fn parallel_zero(comm: &Comm, replica: ZeroReplica, steps: usize) -> Result<Trained> {
    // The replica's backward pass also averages its gradients.
    train(comm.rank(), replica, steps, || Ok(()))
}

/// Trains one of several parallel ranks. `average` replaces its gradients by the mean of all ranks' gradients.
fn train(
    rank: usize,
    mut replica: impl Replica,
    steps: usize,
    average: impl Fn() -> Result<()>,
) -> Result<Trained> {
    let mut losses = Vec::new();
    for step in 0..steps {
        replica.begin()?;
        losses.push(replica.backward(rank, step)?);
        average()?;
        replica.update(step)?;
    }
    Ok(Trained {
        losses,
        values: replica.values()?,
    })
}

// ANCHOR: serial
/// Trains serially: one rank processes the batches of `ranks` ranks one after the other. It adds up their complete
/// gradients in rank order, and divides. N ranks compute the same sums in the same order, so the bits are the same.
pub fn serial(mut replica: impl Replica, ranks: usize, steps: usize) -> Result<Trained> {
    let mut losses = Vec::new();
    for step in 0..steps {
        let mut sum = Vec::new();
        let mut loss = 0.0;
        for rank in 0..ranks {
            replica.begin()?;
            loss += replica.backward(rank, step)?;
            let gradients = replica.gradients();
            match rank {
                0 => sum = gradients,
                _ => sum
                    .iter_mut()
                    .zip(&gradients)
                    .for_each(|(sum, g)| *sum += g),
            }
        }
        sum.iter_mut().for_each(|sum| *sum /= ranks as f32);
        replica.set_gradients(&sum);
        losses.push(loss / ranks as f64);
        replica.update(step)?;
    }
    Ok(Trained {
        losses,
        values: replica.values()?,
    })
}
// ANCHOR_END: serial

/// Compares a parallel training with a serial one, which rank 0 runs here. Rank 0 prints the check; every rank returns
/// whether it holds.
///
/// The parameters must be bitwise equal if sums are added in rank order: in one process, and with two ranks on any
/// transport. An MPI library adds three or more numbers in its own order. Then the losses must agree within `bound`,
/// such as [`Precision::loss_bound`].
pub fn compare(
    comm: &Comm,
    screen: &Screen,
    bound: f64,
    parallel: &Trained,
    serial: impl FnOnce() -> Result<Trained>,
) -> Result<bool> {
    let mut losses = parallel.losses.clone();
    comm.all_reduce(&mut losses, Reduce::Mean)?;
    let mut holds = [0u8];
    if comm.rank() == 0 {
        let (sound, result) = judge(
            &losses,
            &parallel.values,
            &serial()?,
            comm.adds_in_rank_order(),
            bound,
        );
        let ranks = if comm.size() == 1 { "rank" } else { "ranks" };
        let what = format!(
            "{} steps, {} {ranks} compared with 1 rank",
            losses.len(),
            comm.size()
        );
        screen.say(format!("\n{}\n", screen.check(sound, &what, &result)));
        holds = [sound.into()];
    }
    comm.broadcast(&mut holds, 0)?;
    Ok(holds[0] == 1)
}

/// Whether a parallel training, with the ranks' mean losses, is the serial one, and how far apart they are.
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
        (
            apart < bound,
            format!("losses within {apart:.0e} (MPI adds in its own order)"),
        )
    } else if difference > 0.0 {
        (false, format!("off by {difference:.1e}"))
    } else {
        (false, format!("losses off by {apart:.1e}"))
    }
}

/// A rank's GPT, data and AdamW.
pub struct GptReplica<'a> {
    gpt: Gpt,
    adamw: AdamW,
    config: &'a Config,
    text: &'a [u32],
}

impl<'a> GptReplica<'a> {
    /// A replica with initial weights from `seed`.
    pub fn new(config: &'a Config, text: &'a [u32], seed: u64) -> Result<GptReplica<'a>> {
        let gpt = Gpt::new(&config.shape)?;
        gpt.params.allocate(seed);
        let adamw = AdamW::new(config.adamw, &gpt.params);
        Ok(GptReplica {
            gpt,
            adamw,
            config,
            text,
        })
    }
}

impl Replica for GptReplica<'_> {
    fn params(&self) -> &Arc<Params> {
        &self.gpt.params
    }

    fn backward(&mut self, rank: usize, step: usize) -> Result<f64> {
        backward(&self.gpt, self.config, self.text, rank, step)
    }

    fn update(&mut self, step: usize) -> Result<()> {
        let norm = global_norm(&self.gpt.params.gradients());
        let scale = clip_scale(norm, self.config.clip)
            .map_err(|error| Diverged::at(step + 1, error.into()))?;
        self.adamw
            .step(&self.gpt.params, self.config.schedule.at(step), scale)
    }
}

/// A rank's GPT and data. [`Zero`] manages the gradients and the optimizer.
pub struct ZeroReplica<'a> {
    gpt: Gpt,
    zero: Zero,
    precision: Precision,
    config: &'a Config,
    text: &'a [u32],
}

impl<'a> ZeroReplica<'a> {
    /// The replica of one of `comm`'s ranks.
    pub fn new(
        config: &'a Config,
        text: &'a [u32],
        comm: &Comm,
        zero: ZeroConfig,
    ) -> Result<ZeroReplica<'a>> {
        let gpt = Gpt::new(&config.shape)?;
        let precision = zero.precision;
        let zero = Zero::init(&gpt.params, comm, zero, config.seed_of(comm.rank()))?;
        Ok(ZeroReplica {
            gpt,
            zero,
            precision,
            config,
            text,
        })
    }

    /// The replica of a single rank, which holds everything.
    pub fn alone(
        config: &'a Config,
        text: &'a [u32],
        precision: Precision,
    ) -> Result<ZeroReplica<'a>> {
        ZeroReplica::new(
            config,
            text,
            &Comm::alone(),
            ZeroConfig::new(Stage::Zero, precision, config.adamw),
        )
    }
}

impl Replica for ZeroReplica<'_> {
    fn params(&self) -> &Arc<Params> {
        &self.gpt.params
    }

    fn begin(&mut self) -> Result<()> {
        self.zero.begin()
    }

    fn backward(&mut self, rank: usize, step: usize) -> Result<f64> {
        let loss = backward(&self.gpt, self.config, self.text, rank, step)?;
        self.zero.finish()?;
        Ok(loss)
    }

    fn update(&mut self, step: usize) -> Result<()> {
        let norm = self
            .zero
            .step(self.config.schedule.at(step), self.config.clip);
        norm.map(drop)
            .map_err(|error| Diverged::at(step + 1, error))
    }

    fn gradients(&self) -> Vec<f32> {
        if self.precision == Precision::F32 {
            return self.params().gradients().clone();
        }
        let mut gradients = vec![0.0; self.params().numel()];
        widen(&self.params().stored_gradients::<bf16>(), &mut gradients);
        gradients
    }

    /// Rounds the gradients if they are stored in bf16.
    fn set_gradients(&mut self, gradients: &[f32]) {
        match self.precision {
            Precision::F32 => self.params().gradients().copy_from_slice(gradients),
            Precision::Bf16 => narrow(gradients, &mut self.params().stored_gradients::<bf16>()),
        }
    }

    fn values(self) -> Result<Vec<f32>> {
        self.zero.leave()?;
        Ok(self.gpt.params.whole()?.clone())
    }
}

/// Runs a GPT's forward and backward pass over rank `rank`'s batch of `step`. Returns the loss.
pub fn backward(gpt: &Gpt, config: &Config, text: &[u32], rank: usize, step: usize) -> Result<f64> {
    let batch = config.sampler(rank).batch(text, step, 0);
    let loss = gpt.loss(&batch, &config.pass(step, &batch.sequences))?;
    loss.backward()?;
    Ok(f64::from(loss.to_scalar::<f32>()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use shardlab::difference::damaged;

    #[test]
    fn nan_and_missing_elements_are_no_parity() {
        let judge = |parallel: &Trained, serial: &Trained, in_rank_order, bound| {
            judge(
                &parallel.losses,
                &parallel.values,
                serial,
                in_rank_order,
                bound,
            )
        };
        let good = Trained {
            losses: vec![3.0, 2.0, 1.0],
            values: vec![0.5, -2.0, 1.0],
        };
        assert_eq!(
            judge(&good, &good, true, 1e-5),
            (true, "bitwise equal".to_string())
        );
        let mut rounded = good.clone();
        (rounded.losses[2], rounded.values[2]) = (1.000001, 1.01);
        assert!(judge(&rounded, &good, false, 1e-5).0);
        assert_eq!(
            judge(&rounded, &good, true, 1e-5),
            (false, "off by 1.0e-2".to_string())
        );
        for in_rank_order in [true, false] {
            let refuses = |bad: &Trained| {
                let [found, expected] = [
                    judge(bad, &good, in_rank_order, 1e-5),
                    judge(&good, bad, in_rank_order, 1e-5),
                ];
                assert!(!found.0 && !expected.0, "{bad:?}: {found:?} {expected:?}");
            };
            for losses in damaged(&good.losses) {
                refuses(&Trained {
                    losses: losses.clone(),
                    values: good.values.clone(),
                });
                // As over MPI, where parameters are rounded in a different order.
                refuses(&Trained {
                    losses,
                    values: rounded.values.clone(),
                });
            }
            for values in damaged(&[0.5, -2.0, 1.0]) {
                let values = values.iter().map(|x| *x as f32).collect();
                refuses(&Trained {
                    losses: good.losses.clone(),
                    values,
                });
            }
        }
    }
}
