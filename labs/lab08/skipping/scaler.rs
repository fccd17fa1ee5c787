//! Dynamic loss scaling: how training in fp16 keeps its gradients inside the range of fp16.
//!
//! The largest fp16 number is 65,504, and below about 6e-8 fp16 has only zero. Many gradients are
//! smaller. So the loss is multiplied by a large scale before the backward pass, and every gradient
//! with it. The optimizer divides the scale out again. If the scale is too large, a gradient
//! overflows to infinity. Then no rank takes the step, and the scale shrinks. After many good steps
//! it grows again.
//!
//! [`LossScaler::judge`] is the whole protocol of a step: agree, unscale, clip, update the scale.
//! The order matters. Gradients that are clipped before they are unscaled would nearly all be
//! clipped, whatever their size.
//!
//! Megatron-LM and DeepSpeed update the scale by rules that differ in three points: where the scale
//! starts, what happens at its minimum, and, from DeepSpeed 0.17.1 on, when it grows
//! ([`ScalerRule`]). A skipped step changes neither weights nor moments in both. Both also keep the
//! learning-rate schedule where it is; DeepSpeed does so only for a scheduler that its engine
//! steps.

use anyhow::{Context, Result};
use half::f16;
use kit::show::counted;
use serde::{Deserialize, Serialize};
use shardlab::comm::Comm;
use shardlab::tensor::{Listener, Params};
use shardlab::train::clip_scale;
use std::sync::Arc;

/// The published rules. Sources: `megatron/core/optimizer/grad_scaler.py`, and
/// `deepspeed/runtime/fp16/loss_scaler.py` with its history, read in November 2026.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum ScalerRule {
    /// Grows after `window` good steps. An overflow at the minimum is skipped like any other.
    #[value(name = "megatron")]
    Megatron,
    /// DeepSpeed's ZeRO up to 0.17.0: grows like Megatron-LM's, but an overflow at the minimum ends
    /// the run.
    #[value(name = "deepspeed-0.17.0")]
    DeepSpeed0170,
    /// DeepSpeed's ZeRO from 0.17.1 on (commit e440506be, June 2025): it counts only the good steps
    /// before this one. So the first growth after an overflow, or after the start, comes one
    /// step later. An overflow at the minimum ends the run.
    #[value(name = "deepspeed-0.17.1")]
    DeepSpeed0171,
}

/// The settings of a scaler.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalerConfig {
    pub rule: ScalerRule,
    pub initial: f64,
    pub min: f64,
    /// Good steps before the scale grows.
    pub window: u64,
    /// Overflows before the scale shrinks. When it grows, the count starts again; good steps do not
    /// restart it.
    pub hysteresis: u64,
    /// DeepSpeed's `consecutive_hysteresis`: every good step restarts the count, so only overflows
    /// in a row shrink the scale.
    pub consecutive_hysteresis: bool,
    pub growth: f64,
    pub backoff: f64,
}

impl ScalerRule {
    /// The settings that each project has by default.
    pub fn defaults(self) -> ScalerConfig {
        let initial = match self {
            ScalerRule::Megatron => 2f64.powi(32),
            ScalerRule::DeepSpeed0170 | ScalerRule::DeepSpeed0171 => 2f64.powi(16),
        };
        ScalerConfig {
            rule: self,
            initial,
            min: 1.0,
            window: 1000,
            hysteresis: 2,
            consecutive_hysteresis: false,
            growth: 2.0,
            backoff: 0.5,
        }
    }
}

/// A loss scale, and what its rule counts. A checkpoint stores all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaler {
    config: ScalerConfig,
    scale: f64,
    /// Good steps since the last overflow.
    good: u64,
    /// Overflows that remain until the scale shrinks.
    remaining: u64,
}

/// A step that is to be taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unscaled {
    /// The norm of the gradients without the loss scale, before clipping.
    pub grad_norm: f64,
    /// The factor that unscales and clips the gradients, for
    /// [`Zero::update`](shardlab::parallel::Zero::update).
    pub factor: f32,
}

/// DeepSpeed's rule: gradients overflow although the scale is as small as it may be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "gradients overflow fp16 although the loss scale is {0}, its minimum\n\
     help: lower `lr`, or store gradients in bf16, whose range is that of f32"
)]
pub struct AtMinimum(pub f64);

impl LossScaler {
    pub fn new(config: ScalerConfig) -> LossScaler {
        LossScaler {
            config,
            scale: config.initial,
            good: 0,
            remaining: config.hysteresis,
        }
    }

    /// The factor for the loss of the next backward pass.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Takes over another one's scale and counts. The rule and its settings stay.
    pub fn continue_from(&mut self, saved: &LossScaler) {
        let LossScaler { scale, good, remaining, .. } = *saved;
        *self = LossScaler { config: self.config, scale, good, remaining };
    }

    /// What a checkpoint has of it, in words.
    pub fn in_words(&self) -> String {
        let good = counted(self.good as usize, "good step", "good steps");
        let overflow = match self.remaining {
            0 | 1 => "the next overflow".to_string(),
            more => format!("overflow {more} from here"),
        };
        format!("2^{} after {good}; it shrinks at {overflow}", self.scale.log2())
    }

    /// Decides, together with all ranks of `comm`, whether a step is taken: `None` if `norm` is not
    /// finite on any of them. Then updates the scale for the next step.
    ///
    /// `norm` is the global norm of the averaged gradients, still multiplied by the scale. A rank
    /// may give the norm of its own gradients before they are averaged: the ranks agree on the
    /// overflow all the same, and the result is about its own norm.
    ///
    /// # Errors
    /// [`AtMinimum`], as [`LossScaler::update`]; if the collective fails.
    pub fn judge(&mut self, comm: &Comm, norm: f64, clip: f64) -> Result<Option<Unscaled>> {
        let overflow = comm.any(!norm.is_finite())?;
        let scale = self.scale;
        self.update(overflow)?;
        if overflow {
            return Ok(None);
        }
        let grad_norm = norm / scale;
        Ok(Some(Unscaled {
            grad_norm,
            factor: clip_scale(grad_norm, clip)? / scale as f32,
        }))
    }

    /// Updates the scale after a step.
    ///
    /// # Errors
    /// [`AtMinimum`], if gradients overflowed, the scale is as small as it may be, and the rule is
    /// DeepSpeed's.
    pub fn update(&mut self, overflow: bool) -> Result<(), AtMinimum> {
        let LossScaler { config, scale, good, remaining } = self;
        if overflow {
            *good = 0;
            *remaining = remaining.saturating_sub(1);
            if *remaining == 0 {
                if config.rule != ScalerRule::Megatron && *scale == config.min {
                    return Err(AtMinimum(*scale));
                }
                *scale = (*scale * config.backoff).max(config.min);
            }
            return Ok(());
        }
        if config.consecutive_hysteresis {
            *remaining = config.hysteresis;
        }
        let counted = if config.rule == ScalerRule::DeepSpeed0171 {
            *good
        } else {
            *good + 1
        };
        *good += 1;
        if counted > 0 && counted.is_multiple_of(config.window) {
            *scale *= config.growth;
            *remaining = config.hysteresis;
        }
        Ok(())
    }
}

/// Rounds gradients to fp16 and back. A number beyond the range of fp16 becomes infinite, a very
/// small one zero.
pub fn round_to_half(gradients: &mut [f32]) {
    gradients.iter_mut().for_each(|g| *g = f16::from_f32(*g).to_f32());
}

/// Rounds each gradient to fp16 as soon as a backward pass has completed it, while the returned
/// listener lives. So overflow is real, although arithmetic is f32. Register it before a strategy
/// that averages gradients: hooks run in the order in which they were registered.
///
/// On a GPU, activations and their gradients are fp16, too, and can overflow first.
pub fn emulate_half(params: &Arc<Params>) -> Listener {
    params.listen(Box::new(|params, spec| {
        round(params, spec.range()).map_err(|error| candle_core::Error::Msg(error.to_string()))
    }))
}

fn round(params: &Params, range: std::ops::Range<usize>) -> Result<()> {
    let mut gradients = params.whole_gradients().context(
        "fp16 is emulated in a buffer of all gradients in f32, which this rank does not have\n\
         help: use stage 0 or 1 of ZeRO, with gradients in f32",
    )?;
    round_to_half(&mut gradients[range]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalerRule::{DeepSpeed0170, DeepSpeed0171, Megatron};
    use shardlab::launch;

    /// A scaler that begins at 2^16, with a window of 4.
    fn scaler(rule: ScalerRule, consecutive_hysteresis: bool) -> LossScaler {
        let initial = 2f64.powi(16);
        LossScaler::new(ScalerConfig {
            initial,
            window: 4,
            consecutive_hysteresis,
            ..rule.defaults()
        })
    }

    /// The scale's exponent after each step. In `steps`, `i` is an overflow and `g` a good step.
    fn exponents(mut scaler: LossScaler, steps: &str) -> Vec<i32> {
        let after = |step: char| {
            scaler.update(step == 'i').unwrap();
            assert_eq!(scaler.scale().log2().fract(), 0.0);
            scaler.scale().log2() as i32
        };
        steps.chars().map(after).collect()
    }

    /// Vectors that the projects' own code gave.
    #[test]
    fn the_rules_follow_their_projects_step_by_step() {
        for (steps, earlier, deepspeed) in [
            (
                "gggggggg",
                &[16, 16, 16, 17, 17, 17, 17, 18][..],
                &[16, 16, 16, 16, 17, 17, 17, 17][..],
            ),
            (
                "iiiigggggg",
                &[16, 15, 14, 13, 13, 13, 13, 14, 14, 14],
                &[16, 15, 14, 13, 13, 13, 13, 13, 14, 14],
            ),
            (
                "igigigigigig",
                &[16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 11],
                &[16, 16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 11],
            ),
            (
                "iggiggggg",
                &[16, 16, 16, 15, 15, 15, 15, 16, 16],
                &[16, 16, 16, 15, 15, 15, 15, 15, 16],
            ),
        ] {
            assert_eq!(exponents(scaler(Megatron, false), steps), earlier, "Megatron-LM, {steps}");
            assert_eq!(
                exponents(scaler(DeepSpeed0170, false), steps),
                earlier,
                "DeepSpeed 0.17.0, {steps}"
            );
            assert_eq!(
                exponents(scaler(DeepSpeed0171, false), steps),
                deepspeed,
                "DeepSpeed 0.17.1, {steps}"
            );
        }
        for rule in [DeepSpeed0170, DeepSpeed0171] {
            assert_eq!(exponents(scaler(rule, true), "igigigigigig"), [16; 12]);
        }
    }

    #[test]
    fn the_defaults_are_the_projects() {
        let all = [Megatron, DeepSpeed0170, DeepSpeed0171].map(ScalerRule::defaults);
        assert_eq!(all.map(|config| config.initial), [4_294_967_296.0, 65_536.0, 65_536.0]);
        for config in all {
            assert_eq!((config.window, config.hysteresis, config.min), (1000, 2, 1.0));
            assert_eq!(
                (config.growth, config.backoff, config.consecutive_hysteresis),
                (2.0, 0.5, false)
            );
        }
    }

    #[test]
    fn at_the_minimum_megatron_goes_on_and_deepspeed_ends_the_run() {
        for rule in [Megatron, DeepSpeed0170, DeepSpeed0171] {
            let config = ScalerConfig { initial: 2.0, hysteresis: 1, ..rule.defaults() };
            let mut scaler = LossScaler::new(config);
            assert_eq!((scaler.update(true), scaler.scale()), (Ok(()), 1.0));
            let at_minimum = scaler.update(true);
            assert_eq!(at_minimum, if rule == Megatron { Ok(()) } else { Err(AtMinimum(1.0)) });
            assert_eq!(scaler.scale(), 1.0);
        }
    }

    /// If one rank of three overflows, no rank takes the step, and all scalers stay equal.
    #[test]
    fn one_ranks_overflow_is_every_ranks() {
        let scalers = launch::run(3, |comm| {
            let mut scaler = LossScaler::new(ScalerConfig { hysteresis: 1, ..Megatron.defaults() });
            for bad in [0, 2, 1] {
                let norm = if comm.rank() == bad {
                    [f64::INFINITY, f64::NAN][bad % 2]
                } else {
                    1.0
                };
                assert_eq!(scaler.judge(&comm, norm, 1.0)?, None);
            }
            assert!(scaler.judge(&comm, 1.0, 1.0)?.is_some());
            Ok(scaler)
        });
        let scalers = scalers.unwrap();
        assert!(
            scalers
                .iter()
                .all(|scaler| *scaler == scalers[0] && scaler.scale() == 2f64.powi(29))
        );
    }

    #[test]
    fn gradients_are_unscaled_before_they_are_clipped() {
        let mut scaler = LossScaler::new(DeepSpeed0171.defaults());
        let mut judge = |norm| scaler.judge(&Comm::alone(), norm, 1.0).unwrap().unwrap();
        // A norm of 0.5 is not clipped, although 65,536 times as much would be.
        assert_eq!(judge(32_768.0), Unscaled { grad_norm: 0.5, factor: 0.5f32.powi(16) });
        let long = judge(4.0 * 65_536.0);
        assert_eq!(long.grad_norm, 4.0);
        assert!((long.factor * 65_536.0 - 0.25).abs() < 1e-6);
    }

    #[test]
    fn half_overflows_and_underflows() {
        let mut gradients = [
            1.0,
            65_504.0,
            65_520.0,
            -1e6,
            2f32.powi(-24),
            2f32.powi(-26),
            1.0 + 2f32.powi(-12),
            0.1,
        ];
        round_to_half(&mut gradients);
        let [inf, tiny] = [f32::INFINITY, 2f32.powi(-24)];
        assert_eq!(gradients, [1.0, 65_504.0, inf, -inf, tiny, 0.0, 1.0, 0.099_975_586]);
    }
}
