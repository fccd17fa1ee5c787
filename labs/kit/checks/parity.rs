//! Trains the same few steps in two ways and compares them: in parallel by N ranks, and serially by
//! one rank.

use crate::show::{Screen, significant};
use anyhow::Result;
use half::bf16;
use shardlab::comm::{Comm, Reduce};
use shardlab::data::Batch;
use shardlab::difference::{largest_difference, relative_norm, same_bits};
use shardlab::mesh::Axis;
use shardlab::model::Pass;
use shardlab::parallel::{Strategy, ZeroConfig};
use shardlab::plan::{ModelShape, Part};
use shardlab::tensor::stored::narrow;
use shardlab::tensor::{Params, Precision, Spec, Stored};
use shardlab::train::{Config, Setup, Training};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The result of a short training: the loss and the gradients' norm of every step, and all
/// parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub norms: Vec<f64>,
    pub values: Vec<f32>,
}

/// Trains in parallel, as a strategy divides the job. All ranks call it. The losses are those of
/// this rank's replica.
pub fn parallel(mut training: Training, text: &[u32], steps: usize) -> Result<Trained> {
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let taken = training.step(text, step)?;
        losses.push(taken.loss);
        norms.push(taken.grad_norm);
    }
    Ok(Trained { losses, norms, values: values(training)? })
}

/// Takes three steps of a small model ([`Config::parity_check`]) by a strategy with settings of
/// ZeRO, and again on one rank that takes the replicas' batches in turn. Rank 0 of `world` prints
/// the check; every rank returns whether it holds. Parameters are compared, too, if they have one
/// rank's bits (`to_the_bit`): not where ranks share a layer, or add in an order of their own.
///
/// # Errors
/// If a step fails, on the ranks or on the one.
pub fn same_as_one_rank(
    world: &Comm,
    screen: &Screen,
    config: &Config,
    (strategy, zero): (&Strategy, &ZeroConfig),
    text: &[u32],
    to_the_bit: bool,
) -> Result<bool> {
    const STEPS: usize = 3;
    let config = config.parity_check();
    let strategy = Strategy { micro_batches: None, ..*strategy }; // the check has one
    let training = Setup::new(&config, &strategy).zero(zero.clone()).begin(world)?;
    let data = training.mesh.group(Axis::Data).clone();
    let Trained { losses, values, .. } = parallel(training, text, STEPS)?;
    let serial = || {
        let one = Config { ranks: 1, ..config.clone() };
        let alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
        serial(alone, &config, text, STEPS)
    };
    let bound = loss_bound(rounds(&config));
    let values = Some(&values[..]).filter(|_| to_the_bit);
    compare(world, &data, screen, bound, &losses, values, serial)
}

/// Trains serially: one rank, whose training is `alone`, processes the batches of the job's ranks
/// one after the other. It adds up their complete gradients in rank order, and divides. N ranks
/// compute the same sums in the same order, so the bits are the same.
pub fn serial(mut alone: Training, job: &Config, text: &[u32], steps: usize) -> Result<Trained> {
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let mut loss = 0.0;
        let mut sum: Vec<f32> = Vec::new();
        for rank in 0..job.ranks {
            let ran = alone.passes(&drawn(&alone, job, rank..rank + 1, text, step)?)?;
            alone.average()?; // one rank's mean is its own gradients
            loss += alone.loss(&ran)?;
            let own = stored_gradients(&alone.stages.chunks[0].params);
            if rank == 0 {
                sum = own;
            } else {
                sum.iter_mut().zip(own).for_each(|(sum, gradient)| *sum += gradient);
            }
        }
        sum.iter_mut().for_each(|sum| *sum /= job.ranks as f32);
        set_gradients(&alone.stages.chunks[0].params, &sum);
        losses.push(loss / job.ranks as f64);
        norms.push(alone.update(step)?);
    }
    Ok(Trained { losses, norms, values: values(alone)? })
}

// ANCHOR: accumulated
/// Trains serially, with one sum of gradients per step: one rank takes the micro-batches of all
/// replicas one after the other. The same mathematics as on `job.ranks` replicas, with sums in a
/// different order.
pub fn accumulated(job: &Config, text: &[u32], steps: usize) -> Result<Trained> {
    let one = Config {
        ranks: 1,
        grad_accum: job.ranks * job.grad_accum,
        ..job.clone()
    };
    let mut alone = Training::new(&one, &Strategy::SINGLE, &Comm::alone())?;
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        let ran = alone.passes(&drawn(&alone, job, 0..job.ranks, text, step)?)?;
        alone.average()?;
        losses.push(alone.loss(&ran)?);
        norms.push(alone.update(step)?);
    }
    Ok(Trained { losses, norms, values: values(alone)? })
}
// ANCHOR_END: accumulated

/// The micro-batches that some of a job's replicas draw for `step`, with `alone`'s passes.
///
/// # Errors
/// If a pass cannot be made.
pub fn drawn(
    alone: &Training,
    job: &Config,
    replicas: Range<usize>,
    text: &[u32],
    step: usize,
) -> Result<Vec<(Batch, Pass)>> {
    let mut all = Vec::new();
    for replica in replicas {
        for micro in 0..job.grad_accum {
            all.push(job.sampler(replica).batch(text, step, micro));
        }
    }
    alone.with_passes(step, all)
}

/// The type that rounds what ranks add up: that of factors and activations, or that of gradients.
/// Losses of two orders of these sums differ by at most its [`loss_bound`].
pub fn rounds(config: &Config) -> Precision {
    match config.reduce {
        Precision::Bf16 => Precision::Bf16,
        Precision::F32 => config.precision,
    }
}

/// The largest difference of two losses whose gradients were added in different orders.
pub fn loss_bound(precision: Precision) -> f64 {
    match precision {
        Precision::F32 => 1e-5,
        Precision::Bf16 => 1e-3,
    }
}

/// [`loss_bound`] after some steps: each begins where the last one ended, so roundings become more.
pub fn later_loss_bound(precision: Precision) -> f64 {
    10.0 * loss_bound(precision)
}

/// The most by which a gradient may differ from one rank's, norm by norm: `f32`, or where factors
/// or gradients are rounded to bf16 four of its units of 2^-8.
pub fn gradient_bound(config: &Config, f32: f64) -> f64 {
    match rounds(config) {
        Precision::F32 => f32,
        Precision::Bf16 => BF16_GRADIENT,
    }
}

/// Four units of bf16, which are 2^-8.
const BF16_GRADIENT: f64 = 4.0 / 256.0;

/// The worst of some differences: 0 without any. Not a number is worse than all.
pub fn worst(all: impl IntoIterator<Item = f64>) -> f64 {
    all.into_iter()
        .fold(0.0, |most: f64, x| if x > most || x.is_nan() { x } else { most })
}

/// The most by which two gradients of a parameter in f32 differ, norm by norm, if their sums are in
/// different orders: as a part of the gradient.
///
/// A sum of K products rounds K times, each time by at most u = 2^-24 of a number and in a random
/// direction, so it is off by √K·u (Higham and Mary, doi 10.1137/18M1226312). Sums follow each
/// other on a gradient's way. A matrix adds up a product for each column forward, and for each row
/// backward. Attention adds up a head's width for scores and all positions for averages, forward
/// and again backward. Last, a parameter adds up its tokens. Independent errors add up in squares:
/// √ΣK·u, and two computations have √2 of one's.
///
/// That is an estimate and no theorem. A number rounds by less than u, kernels add up in blocks,
/// and both computations share most orders; on the other side, what cancels in a sum leaves its
/// roundings. Small models of this library differ by about a tenth of it.
pub fn rounding(shape: &ModelShape, tokens: usize) -> f64 {
    // A way goes through one of a block's experts.
    let blocks = (0..shape.layers).flat_map(|layer| shape.block_parameters(layer));
    let matrices =
        blocks.filter(|parameter| matches!(parameter.part, Part::Common | Part::Expert(0)));
    let matrices: usize = matrices.filter_map(|part| Some(part.rows + part.columns?)).sum();
    let attention = 2 * (shape.embd / shape.heads + shape.block);
    let head = shape.embd + shape.vocabulary;
    let terms = matrices + shape.layers * attention + head + tokens;
    let u = f64::from(f32::EPSILON) / 2.0;
    (2.0 * terms as f64).sqrt() * u
}

/// The values in f32, in the flat layout, as they are stored.
pub fn stored_values(params: &Params) -> Vec<f32> {
    match params.whole() {
        Ok(values) => values.clone(),
        Err(_) => bf16::widened(params.stored_values::<bf16>().to_vec()),
    }
}

/// The gradients in f32, in the flat layout, as they are stored.
pub fn stored_gradients(params: &Params) -> Vec<f32> {
    if let Ok(gradients) = params.whole_gradients() {
        return gradients.clone();
    }
    bf16::widened(params.stored_gradients::<bf16>().to_vec())
}

/// The numbers of each parameter by its name, of `flat` in the layout of `params`.
pub fn by_name(params: &Params, flat: &[f32]) -> HashMap<String, Vec<f32>> {
    let of = |spec: &Arc<Spec>| (spec.name.clone(), flat[spec.range()].to_vec());
    params.specs().iter().map(of).collect()
}

/// The largest difference of a parameter's gradient, of those `found`, from one rank's, norm by
/// norm; and the parameter. Of those that a mistake puts equally far, up to roundings, the first.
pub fn farthest(params: &Params, found: &[f32], one: &HashMap<String, Vec<f32>>) -> (f64, String) {
    let mut farthest = (0.0, String::new());
    // A bias by which routers select has a load in place of a gradient: only its sign counts.
    for spec in params.specs().iter().filter(|spec| spec.whole.part != Part::SelectionBias) {
        let expected = one.get(&spec.name).map_or(&[][..], Vec::as_slice);
        let apart = relative_norm(&found[spec.range()], expected);
        if apart > farthest.0 * (1.0 + 1e-5) {
            farthest = (apart, spec.name.clone());
        }
    }
    farthest
}

/// Replaces the gradients. Rounds them if they are stored in bf16.
pub fn set_gradients(params: &Params, gradients: &[f32]) {
    if let Ok(mut stored) = params.whole_gradients() {
        stored.copy_from_slice(gradients);
    } else {
        narrow(gradients, &mut params.stored_gradients::<bf16>());
    }
}

/// Ends a training. Returns all parameters of this rank's layers.
fn values(training: Training) -> Result<Vec<f32>> {
    Ok(training.leave()?.chunks[0].params.whole()?.clone())
}

/// Compares a parallel training with a serial one, which rank 0 of `world` runs here. Rank 0 prints
/// the check; every rank returns whether it holds. `data` are the ranks that drew different
/// batches: the losses' mean is over them.
///
/// With `values`, parameters must be bitwise equal if sums are added in rank order: in one process,
/// and with two ranks on any transport. An MPI library adds three or more numbers in its own order.
/// Then, and without `values`, the losses must agree within `bound`, such as [`loss_bound`].
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
    use shardlab::plan::Experts;
    use shardlab::plan::Family;
    use shardlab::tensor::Init;

    /// By hand, of lab13's own run.
    #[test]
    fn sums_on_a_gradients_way_are_counted() {
        let experts = Experts { count: 8, top_k: 2, normalized: true, ..Experts::default() };
        let shape = ModelShape {
            vocabulary: 65,
            block: 64,
            layers: 2,
            heads: 4,
            embd: 64,
            family: Family::Gpt,
            experts: Some(Experts { ffn: 128, ..experts }),
        };
        let [qkv, proj, router, expert] = [64 + 192, 64 + 64, 64 + 8, 2 * (64 + 128)];
        let layer = qkv + proj + router + expert + 2 * (16 + 64);
        let all = f64::from(2 * layer + 64 + 65 + 512);
        assert_eq!(rounding(&shape, 512), (2.0 * all).sqrt() * 2f64.powi(-24));
    }

    #[test]
    fn gradients_that_are_not_numbers_are_infinitely_far() {
        let params = Params::new();
        for name in ["a", "b"] {
            params.declare(name, &[2], Init::Constant(0.0)).unwrap();
        }
        let good = [3.0, 4.0, 0.0, 1.0];
        let apart = |found: &[f32], one: &[f32]| farthest(&params, found, &by_name(&params, one));
        assert_eq!(apart(&good, &good), (0.0, String::new()));
        assert_eq!(apart(&[3.0, 4.0, 0.0, 1.5], &good), (0.5, "b".to_string()));
        assert!(farthest(&params, &good, &HashMap::new()).0.is_infinite());
        for i in 0..good.len() {
            let mut bad = good;
            bad[i] = f32::NAN;
            assert!(apart(&bad, &good).0.is_infinite(), "{i}");
            assert!(apart(&good, &bad).0.is_infinite(), "{i}");
        }
        assert_eq!(worst([1.0, 3.0, 2.0]), 3.0);
        assert!(worst([1.0, f64::NAN, 2.0]).is_nan());
    }

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
