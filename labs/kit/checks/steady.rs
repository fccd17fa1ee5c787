//! Which steps of a training say something of how its ranks train: those in which roundings cannot
//! have become more than a check allows.

use super::Checks;
use super::parity::{gradient_bound, rounding, set_gradients, stored_gradients, worst};
use anyhow::Result;
use shardlab::comm::Comm;
use shardlab::data::Batch;
use shardlab::difference::largest_relative_difference;
use shardlab::model::Pass;
use shardlab::parallel::Strategy;
use shardlab::plan::Part;
use shardlab::tensor::random::Stream;
use shardlab::train::{Config, Diverged, Training};
use std::ops::Range;

/// Trainings whose gradients are off. One of them can end near its start by chance.
const AGAIN: u64 = 4;

/// Figures may be off by so many times the most that one rank's were, whose gradients were off in
/// several ways. Of 180 right trainings of lab13, of 9 kinds, with rates from its own to 1, the
/// farthest was off by 3 times that.
pub const TIMES: f64 = 8.0;

/// Of the losses `found`, from step `from` on, the first ones, which are to be compared with those
/// `expected`: all, if they are within `bound`, a part of the loss. Else those before one at which
/// roundings alone can be that large, as one rank's own trainings show whose gradients are off; the
/// first is of no gradients yet, so it is one of them. `one` is that rank's job, `passes` its
/// micro-batches of a step.
///
/// No constant can say it. At a lab's own rate losses are off by 1e-5 after a few steps, and with
/// `--lr 0.1 --warmup 0` by 0.1.
///
/// # Errors
/// If a pass fails.
pub fn compared(
    one: &Config,
    from: usize,
    (found, expected): (&[f64], &[f64]),
    bound: f64,
    passes: impl Fn(&Training, usize) -> Result<Vec<(Batch, Pass)>>,
) -> Result<usize> {
    let steps = expected.len();
    if largest_relative_difference(found, expected) < bound {
        return Ok(steps);
    }
    let off = again(|sample| losses_off(one, sample, from..from + steps, &passes))?;
    let drift = |step: usize| {
        let apart = |off: &Option<Vec<f64>>| {
            off.as_ref()
                .map_or(f64::INFINITY, |off| (off[step] / expected[step] - 1.0).abs())
        };
        worst(off.iter().map(apart))
    };
    Ok(steady((0..steps).map(|step| drift(step) / bound)))
}

/// Takes a training again some times, with gradients that are off, in each sample otherwise. None:
/// roundings alone have ended it.
///
/// # Errors
/// Those of `take`, but that it diverges.
pub fn again<T>(take: impl FnMut(u64) -> Result<T>) -> Result<Vec<Option<T>>> {
    let all = (0..AGAIN).map(take).map(|off| match off {
        Err(error) if error.is::<Diverged>() => Ok(None),
        off => off.map(Some),
    });
    all.collect()
}

/// The first steps in which roundings cannot have become more than a bound, of each step's drift as
/// a part of it: the first one at least, which is of no gradients yet.
pub fn steady(drift: impl ExactSizeIterator<Item = f64>) -> usize {
    let all = drift.len();
    // Not a number is below no bound.
    let calm = drift.take_while(|drift| TIMES * drift <= 1.0);
    calm.count().clamp(all.min(1), all)
}

/// The losses of `steps` on one rank, whose gradients are off from the first of them on, in each
/// sample otherwise.
fn losses_off(
    one: &Config,
    sample: u64,
    steps: Range<usize>,
    passes: impl Fn(&Training, usize) -> Result<Vec<(Batch, Pass)>>,
) -> Result<Vec<f64>> {
    let mut alone = Training::new(one, &Strategy::SINGLE, &Comm::alone())?;
    let mut losses = Vec::new();
    for step in 0..steps.end {
        let ran = alone.passes(&passes(&alone, step)?)?;
        alone.average()?;
        if steps.contains(&step) {
            push_off(&alone, sample, step);
            losses.push(alone.loss(&ran)?);
        }
        alone.update(step)?;
    }
    Ok(losses)
}

/// Moves the averaged gradients of a step by as much as right ones may be off, norm by norm
/// ([`gradient_bound`], [`rounding`]), each element up or down at random. A training with such
/// gradients shows what roundings become: that depends on the rate. Each `sample` is another one.
///
/// Not by a part of each element: where ranks' parts cancel, a sum is off by more of itself, and
/// Adam makes a whole step of the sign that is left. What is exactly 0 stays it: no token has used
/// that row, and there is nothing to round.
pub fn push_off(alone: &Training, sample: u64, step: usize) {
    let config = &alone.config;
    let part = gradient_bound(config, rounding(&config.shape, config.tokens_per_step()));
    let params = &alone.stages.chunks[0].params;
    let mut gradients = stored_gradients(params);
    let signs = Stream::new(config.seed, "roundings").branch(sample).branch(step as u64);
    // A bias by which routers select has a load in place of a gradient: only its sign counts.
    for spec in params.specs().iter().filter(|spec| spec.whole.part != Part::SelectionBias) {
        let range = spec.range();
        let own = &mut gradients[range.clone()];
        let used = own.iter().filter(|&&gradient| gradient != 0.0).count().max(1);
        let squares: f64 = own.iter().map(|&gradient| f64::from(gradient).powi(2)).sum();
        let off = (part * (squares / used as f64).sqrt()) as f32;
        for (gradient, i) in own.iter_mut().zip(range).filter(|(gradient, _)| **gradient != 0.0) {
            *gradient += if signs.bits(i as u64) & 1 == 0 { off } else { -off };
        }
    }
    set_gradients(params, &gradients);
}

impl Checks<'_> {
    /// Says that fewer steps than `all` were compared, and why.
    pub fn compared(&self, compared: usize, all: usize) {
        if compared < all {
            self.note(&format!(
                "compared: {compared} of {all} steps. At this rate roundings grow: after them, one \
                 rank's own losses would be as far off"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::parity::drawn;
    use shardlab::data::Corpus;
    use shardlab::train::LrSchedule;

    #[test]
    fn steps_are_steady_until_one_drifts() {
        let calm = 1.0 / TIMES;
        assert_eq!(steady([0.0, calm, calm].into_iter()), 3);
        assert_eq!(steady([0.0, 2.0 * calm, calm].into_iter()), 1);
        assert_eq!(steady([0.0, calm, f64::NAN].into_iter()), 2);
        assert_eq!(steady([f64::INFINITY, 0.0].into_iter()), 1);
    }

    /// At a small rate a loss that is off is a mistake; at a large one it says nothing.
    #[test]
    fn the_rate_says_how_many_steps_are_compared() {
        let corpus = Corpus::embedded().unwrap();
        let of = |lr: f64| {
            let small = Config::small(1, &corpus);
            let one = Config { schedule: LrSchedule::constant(lr), ..small };
            let passes = |alone: &Training, step| drawn(alone, &one, 0..1, &corpus.train, step);
            let expected = losses_off(&one, 100, 1..4, passes).unwrap();
            let mut found = expected.clone();
            assert_eq!(compared(&one, 1, (&found, &expected), 1e-5, passes).unwrap(), 3, "{lr}");
            found[2] *= 1.01;
            compared(&one, 1, (&found, &expected), 1e-5, passes).unwrap()
        };
        assert_eq!(of(1e-4), 3);
        assert!(of(0.3) < 3);
    }
}
