//! A training whose steps may be skipped or refused, for tests of what that changes.

use super::trained::config;
use labs::lab08::skipping::{
    Bound, Counters, LossScaler, Ranges, ScalerConfig, ScalerRule, SkippingTrainer, Unscaled,
    emulate_half, state_bits,
};
use shardlab::comm::{Comm, Reduce};
use shardlab::mesh::Coordinates;
use shardlab::parallel::Strategy;
use shardlab::parallel::zero::{Stage, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::{Config, Setup};
use std::ops::{Deref, DerefMut};

/// One rank's training, and a record of its steps.
pub struct Training<'a> {
    guarded: SkippingTrainer<'a>,
    /// For each step, the hashes of the micro-batches that were drawn, and the loss if the step was
    /// taken.
    pub steps: Vec<(Vec<String>, Option<f64>)>,
}

impl<'a> Deref for Training<'a> {
    type Target = SkippingTrainer<'a>;

    fn deref(&self) -> &SkippingTrainer<'a> {
        &self.guarded
    }
}

impl<'a> DerefMut for Training<'a> {
    fn deref_mut(&mut self) -> &mut SkippingTrainer<'a> {
        &mut self.guarded
    }
}

impl<'a> From<SkippingTrainer<'a>> for Training<'a> {
    fn from(guarded: SkippingTrainer<'a>) -> Training<'a> {
        Training { guarded, steps: Vec::new() }
    }
}

impl<'a> Training<'a> {
    pub fn new(
        comm: &'a Comm,
        config: &'a Config,
        text: &'a [u32],
        zero: ZeroConfig,
        half: bool,
    ) -> anyhow::Result<Self> {
        let strategy = Strategy::data(config.ranks, zero.stage);
        let mut setup = Setup::new(config, &strategy).zero(zero);
        if half {
            setup = setup.listen(emulate_half);
        }
        Ok(SkippingTrainer::new(setup.begin(comm)?, text).into())
    }

    pub fn until(&mut self, step: usize) -> anyhow::Result<()> {
        while self.counters.global_steps < step {
            self.step()?;
        }
        Ok(())
    }

    pub fn step(&mut self) -> anyhow::Result<()> {
        let step = self.guarded.step()?;
        self.steps.push((step.drawn, step.outcome.loss()));
        Ok(())
    }

    /// The bits of all state that an optimizer step changes on this rank.
    pub fn state(&mut self) -> anyhow::Result<Vec<u32>> {
        state_bits(&mut self.guarded.training.zero)
    }
}

fn f32(stage: Stage) -> ZeroConfig {
    ZeroConfig::new(stage, Precision::F32, super::zero::ADAMW)
}

/// The tokens that are drawn at every step are the same with and without skipping, on every rank,
/// also with accumulation, and also after a resume in the middle of a range.
pub fn skipping_draws_the_same_tokens(comm: &Comm) -> anyhow::Result<()> {
    for accumulation in [1, 3] {
        let (config, corpus) = config(comm.size(), |config| config.grad_accum = accumulation);
        let run = |ranges: &[i64], resume_after: usize| {
            let train = || -> anyhow::Result<_> {
                let mut training =
                    Training::new(comm, &config, &corpus.train, f32(Stage::One), false)?;
                training.ranges = Ranges::parse(ranges)?;
                Ok(training)
            };
            let mut first = train()?;
            first.until(resume_after)?;
            let mut second = train()?;
            second.counters = serde_json::from_str(&serde_json::to_string(&first.counters)?)?;
            second.until(7)?;
            first.steps.append(&mut second.steps);
            anyhow::Ok((first.steps, second.counters))
        };
        let (all, counted) = run(&[], 7)?;
        let hashes = |steps: &[(Vec<String>, Option<f64>)]| {
            steps.iter().map(|step| step.0.clone()).collect::<Vec<_>>()
        };
        assert!(all.iter().all(|(hashes, loss)| hashes.len() == accumulation && loss.is_some()));
        let mut distinct = hashes(&all).concat();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 7 * accumulation);
        // In one go, and resumed before, in the middle of, and after the range.
        for resume_after in [7, 1, 3, 5] {
            let (skipped, counters) = run(&[2, 4, 6, 6], resume_after)?;
            assert_eq!(hashes(&skipped), hashes(&all), "resumed after step {resume_after}");
            let taken: Vec<usize> = (1..=7).filter(|step| skipped[step - 1].1.is_some()).collect();
            assert_eq!(taken, [1, 5, 7]);
            assert_eq!(counters, Counters { skipped_steps: 4, ..counted });
        }
    }
    Ok(())
}

/// A run that skips by a bound ends with the bits of a run that skips the same steps by their
/// numbers. `comm` must have 2 ranks or more, of which one alone finds the step bad.
pub fn a_bound_skips_like_ranges(comm: &Comm, stage: Stage) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |_| ());
    let train = |bound: bool| -> anyhow::Result<_> {
        let mut training = Training::new(comm, &config, &corpus.train, f32(stage), false)?;
        if !bound {
            training.ranges = Ranges::parse(&[3, 3])?;
        }
        for step in 1..=5 {
            // Only one rank's bound is so low that step 3 passes it.
            let low = step == 3 && comm.rank() + 1 == comm.size();
            training.bound = bound.then_some(if low {
                Bound { loss: 0.0, ..Bound::NONE }
            } else {
                Bound::NONE
            });
            training.step()?;
        }
        let taken: Vec<bool> = training.steps.iter().map(|step| step.1.is_some()).collect();
        assert_eq!(taken, [true, true, false, true, true]);
        Ok((training.state()?, training.counters, training.steps))
    };
    assert!(train(true)? == train(false)?, "{stage:?}");
    Ok(())
}

/// A loss scale that causes no overflow changes no bit, because a power of two only moves
/// exponents.
pub fn a_loss_scale_alone_changes_no_bit(comm: &Comm, stage: Stage) -> anyhow::Result<()> {
    let (config, corpus) =
        config(comm.size(), |config| (config.clip, config.grad_accum) = (0.5, 2));
    let train = |initial: Option<f64>| -> anyhow::Result<_> {
        let mut training = Training::new(comm, &config, &corpus.train, f32(stage), false)?;
        training.scaler = initial.map(|initial| {
            // The scale grows during the run.
            LossScaler::new(ScalerConfig { initial, window: 2, ..ScalerRule::Megatron.defaults() })
        });
        training.until(5)?;
        Ok((training.state()?, training.steps))
    };
    assert!(train(Some(2f64.powi(16)))? == train(None)?, "{stage:?}");
    Ok(())
}

/// With gradients in fp16 and the first scale of Megatron, the first steps overflow. They are
/// skipped, and move neither weights, nor moments, nor the schedule. Afterwards the run trains.
pub fn in_fp16_the_first_steps_are_skipped(comm: &Comm, stage: Stage) -> anyhow::Result<()> {
    let (config, corpus) = config(comm.size(), |_| ());
    let mut training = Training::new(comm, &config, &corpus.train, f32(stage), true)?;
    training.scaler = Some(LossScaler::new(ScalerRule::Megatron.defaults()));
    let initial = training.state()?;
    let mut refused = 0;
    let mut states = Vec::new();
    let mut scales = Vec::new();
    for _ in 0..40 {
        training.step()?;
        states.push(training.state()?);
        scales.extend(training.scaler.as_ref().map(LossScaler::scale));
        if training.steps.last().is_some_and(|step| step.1.is_some()) {
            break;
        }
        refused += 1;
        assert!(
            states[states.len() - 1] == initial,
            "{stage:?}: a refused step has changed state"
        );
        assert_eq!((training.counters.schedule, training.counters.global_steps), (0, refused));
    }
    // Hysteresis is 2: the first overflow leaves the scale, each later one halves it.
    assert!((10..30).contains(&refused), "{stage:?}: {refused} steps were refused");
    assert_eq!(scales[..2], [2f64.powi(32), 2f64.powi(31)]);
    assert!(states[refused] != initial);
    assert_eq!((training.counters.schedule, training.counters.skipped_steps), (1, refused));
    training.until(refused + 30)?;
    let losses: Vec<f64> = training.steps.iter().filter_map(|step| step.1).collect();
    assert!(losses[losses.len() - 1] < losses[0] - 0.2, "{losses:?}");
    // All ranks have the same scale.
    let mut most = [training.scaler.as_ref().map_or(0.0, LossScaler::scale)];
    comm.all_reduce(&mut most, Reduce::Max)?;
    assert_eq!(Some(most[0]), training.scaler.as_ref().map(LossScaler::scale));
    Ok(())
}

/// The same in a pipeline on a mesh of data x pipeline x tensor ranks, whose ranks agree on each
/// step.
pub fn a_loss_scale_changes_no_bit_of_a_pipeline(
    world: &Comm,
    sizes: Coordinates,
) -> anyhow::Result<()> {
    let (config, corpus) = config(sizes.data, |config| {
        (config.clip, config.grad_accum, config.batch, config.shape.heads) = (0.5, 4, 1, 4);
    });
    let strategy = super::strategy(sizes, Stage::One);
    let train = |initial: f64| -> anyhow::Result<_> {
        let mut training = Setup::new(&config, &strategy).zero(f32(Stage::One)).begin(world)?;
        let mut scaler =
            LossScaler::new(ScalerConfig { initial, window: 2, ..ScalerRule::Megatron.defaults() });
        let mut norms = Vec::new();
        for step in 0..4 {
            training.stages.loss_scale = scaler.scale();
            let micro_batches = training.draw(&corpus.train, step, &mut ())?;
            training.passes(&micro_batches)?;
            training.average()?;
            let norm = training.zero.norm()?;
            // One rank alone finds that step 2 overflows: no rank takes it.
            let overflows = step == 2 && world.rank() + 1 == world.size();
            let judged =
                scaler.judge(world, if overflows { f64::INFINITY } else { norm }, config.clip)?;
            assert_eq!(judged.is_none(), step == 2);
            if let Some(Unscaled { grad_norm, factor }) = judged {
                norms.push(grad_norm.to_bits());
                training.zero.update(config.schedule.at(step), factor)?;
            }
        }
        Ok((norms, state_bits(&mut training.zero)?))
    };
    assert!(train(2f64.powi(16))? == train(1.0)?, "{sizes:?}");
    Ok(())
}
