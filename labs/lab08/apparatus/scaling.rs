//! A training whose gradients are fp16 numbers: the loss scale overflows until it fits, and then
//! follows the gradients.
//!
//! Gradients of parameters are rounded to fp16 as soon as a backward pass has completed them. So
//! their overflow is real. Activations and their gradients stay in f32. On a GPU they are fp16 as
//! well, and can overflow first.

use super::Job;
use super::iterations::{Interval, LoggedRun};
use super::training::state_hash;
use crate::flags::ScalingFlags;
use crate::skipping::{LossScaler, Outcome, ScalerConfig, ScalerRule, SkippingTrainer};
use anyhow::Result;
use kit::Checks;
use kit::show::{Plot, Screen, Series, folded, table, thousands};
use shardlab::comm::{Comm, Reduce};
use shardlab::train::{Diverged, all_hashes};
use std::time::Instant;

/// One step of the training, as the screen shows it.
struct Step {
    taken: Option<f64>,
    /// The scale that the step's loss was multiplied with.
    scale: f64,
    /// The step's line in the log.
    line: String,
}

/// Trains in fp16 as the flags say. `clip_first`: gradients are clipped before they are unscaled.
/// All ranks call it.
pub fn scaling(job: &Job, comm: &Comm, clip_first: bool, checks: &mut Checks) -> Result<()> {
    let config = &job.config;
    let screen = &job.screen;
    let flags = &job.flags.scaling;
    let mut trainer = SkippingTrainer::new(job.begin_in_half(comm)?, &job.corpus.train);
    trainer.scaler = Some(LossScaler::new(flags.config()));
    let logged = LoggedRun::of(config);
    let mut steps = Vec::new();
    let mut interval = Interval::default();
    let mut moved = 0;
    for number in 1..=config.steps {
        let scale = trainer.scale();
        let before = state_hash(&mut trainer.training.zero)?;
        let schedule = trainer.counters.schedule;
        let start = Instant::now();
        let outcome =
            step(&mut trainer, clip_first).map_err(|error| Diverged::at(number, error))?;
        interval.add(&outcome, start.elapsed().as_secs_f64());
        if outcome.loss().is_none() {
            let same = before == state_hash(&mut trainer.training.zero)?
                && schedule == trainer.counters.schedule;
            moved += usize::from(!same);
        }
        let line = interval.line(&logged, &trainer.counters, config.schedule.at(schedule), scale);
        steps.push(Step { taken: outcome.loss(), scale, line });
    }
    let models = trainer.training.whole(|gpt| all_hashes(comm, &gpt.params))?;
    let refused = steps.iter().filter(|step| step.taken.is_none()).count();
    let moved = comm.any(moved > 0)?;
    let alone = one_rank_overflows(comm, flags)?;
    let same = [f64::INFINITY, CLIP].map(|clip| changes_no_bit(job, comm, clip, clip_first));
    let [unclipped, clipped] =
        [same[0].as_ref(), same[1].as_ref()].map(|same| same.is_ok_and(|same| *same));
    same.into_iter().collect::<Result<Vec<_>>>()?;
    if comm.rank() > 0 {
        return Ok(());
    }

    let words = "parameters' gradients are rounded; activations and theirs stay f32";
    screen.say(screen.row("fp16", words));
    log(screen, &steps);
    let points = steps.iter().zip(1..);
    let points = points.map(|(step, number)| (f64::from(number), step.scale.log2()));
    let plot = Plot::new("log2 of the loss scale", "step").series(Series::line("scale", points));
    screen.say(format!("\n{}\n", plot.height(6).render(screen)));
    screen.say(rules(screen));
    screen.say("");
    let result = format!("{} of {}", thousands(refused as u64), thousands(steps.len() as u64));
    checks.check(
        !moved,
        "refused steps moved no weight, moment or schedule",
        &result,
        "a refused step has changed state",
    );
    checks.check(
        alone == comm.size(),
        "an overflow on the last rank only",
        &format!("refused on {alone} of {}", comm.size()),
        "ranks do not agree whether a step overflowed",
    );
    checks.check_bits(
        unclipped,
        "f32 with a scale = f32 without",
        "a loss scale without overflow has changed the training",
    );
    checks.check_bits(
        clipped,
        &format!("the same, clipped at {CLIP}"),
        "gradients are clipped before they are unscaled",
    );
    checks.one_model(&models);
    Ok(())
}

/// The next step. A bound for the scaled norm is the scale times lower for the norm without it.
fn step(trainer: &mut SkippingTrainer, clip_first: bool) -> Result<Outcome> {
    let clip = trainer.training.config.clip;
    if clip_first {
        trainer.training.config.clip /= trainer.scale();
    }
    let step = trainer.step();
    trainer.training.config.clip = clip;
    Ok(step?.outcome)
}

/// Prints the first iteration, the first that trained, and what followed.
fn log(screen: &Screen, steps: &[Step]) {
    let line = |i: usize| screen.say(folded(&steps[i].line, screen.width));
    let losses: Vec<f64> = steps.iter().filter_map(|step| step.taken).collect();
    line(0);
    let Some(first) = steps.iter().position(|step| step.taken.is_some()) else {
        return screen.say(screen.row(
            "loss",
            "no step was taken: give more --steps, or a lower --initial-scale-power",
        ));
    };
    if first > 1 {
        screen.say(screen.dim(format!("  .. {} more skipped", first - 1)));
    }
    if first > 0 {
        line(first);
    }
    let taken = losses.len();
    let later = steps.len() - first - losses.len();
    let loss = format!(
        "{:.3} to {:.3} in {taken} steps; {later} more skipped later",
        losses[0],
        losses[taken - 1]
    );
    screen.say(format!("\n{}", screen.row("loss", &loss)));
}

/// The rules over the same steps: `i` is an overflow and `g` a good step.
fn rules(screen: &Screen) -> String {
    const STEPS: &str = "gggggiigggggg";
    let exponents = |rule: ScalerRule| -> Vec<String> {
        let initial = 2f64.powi(16);
        let mut scaler = LossScaler::new(ScalerConfig { initial, window: 4, ..rule.defaults() });
        let after = |step| match scaler.update(step == 'i') {
            Ok(()) => scaler.scale().log2().to_string(),
            Err(_) => "end".into(),
        };
        STEPS.chars().map(after).collect()
    };
    let row = |(name, rule): (&str, ScalerRule)| [vec![name.to_string()], exponents(rule)].concat();
    let mut header = vec!["log2, window 4".to_string()];
    header.extend(STEPS.chars().map(String::from));
    let rows = [
        ("Megatron-LM", ScalerRule::Megatron),
        ("DeepSpeed to 0.17.0", ScalerRule::DeepSpeed0170),
        ("from 0.17.1 on", ScalerRule::DeepSpeed0171),
    ]
    .map(row);
    let text = "All rules from 2^16, hysteresis 2: g is a good step, i an overflow.";
    format!("  {text}\n{}", table(screen, &header, &rows))
}

/// The number of ranks that refuse a step in which the last rank alone overflows.
fn one_rank_overflows(comm: &Comm, flags: &ScalingFlags) -> Result<usize> {
    let norm = if comm.rank() + 1 == comm.size() {
        f64::INFINITY
    } else {
        1.0
    };
    let mut scaler = LossScaler::new(flags.config());
    let refused = u64::from(scaler.judge(comm, norm, 1.0)?.is_none());
    Ok(comm.reduced(refused, Reduce::Sum)? as usize)
}

/// Below the norms of the first steps, so that all of them are clipped.
const CLIP: f64 = 0.5;

/// Whether some steps in f32 with a loss scale that never overflows have the bits of the same steps
/// without it.
fn changes_no_bit(job: &Job, comm: &Comm, clip: f64, clip_first: bool) -> Result<bool> {
    let train = |scaled: bool| -> Result<String> {
        let mut trainer = SkippingTrainer::new(job.begin(comm)?, &job.corpus.train);
        trainer.training.config.clip = clip;
        // The scale grows during these steps.
        let defaults = ScalerRule::Megatron.defaults();
        let config = ScalerConfig { initial: 2f64.powi(16), window: 2, ..defaults };
        trainer.scaler = scaled.then(|| LossScaler::new(config));
        for _ in 0..5 {
            step(&mut trainer, clip_first)?;
        }
        state_hash(&mut trainer.training.zero)
    };
    Ok(!comm.any(train(true)? != train(false)?)?)
}
