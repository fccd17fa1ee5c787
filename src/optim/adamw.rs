//! AdamW on fragments of parameters.

use super::fragment::{Fragment, InitialValues, initial_store};
use super::store::{Offload, StateStore, StoredBytes, Windowed};
use crate::memory::zeros;
use crate::plan::Part;
use crate::tensor::math::vectorized;
use crate::tensor::stored::narrow;
use crate::tensor::{Params, Precision, Stored};
use anyhow::Result;
use std::ops::Range;

/// The optimizer's settings. Every step passes its own learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// Applies to parameters with two dimensions only: gains and biases do not decay.
    pub weight_decay: f64,
    /// By how much a step moves the biases that balance experts (DeepSeek-V3's γ).
    pub bias_rate: f64,
}

impl AdamWConfig {
    /// What nanoGPT trains its small model of characters with, and DeepSeek-V3 (arXiv 2412.19437)
    /// its experts' biases.
    pub const NANOGPT: AdamWConfig = AdamWConfig {
        beta1: 0.9,
        beta2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        bias_rate: 1e-3,
    };
}

impl Default for AdamWConfig {
    fn default() -> AdamWConfig {
        AdamWConfig::NANOGPT
    }
}

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101): Adam's step, and weight decay that is
/// independent of the gradient.
///
/// Its state is two moments per parameter, and an f32 master copy of weights that are stored in
/// fewer bits. The state belongs to a list of fragments: all parameters under data parallelism, a
/// rank's shard of them under ZeRO.
///
/// Layers learn to return their input. Gradients are clipped to a norm of 1:
///
/// ```
/// use shardlab::model::LinearStack;
/// use shardlab::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
///
/// let model = LinearStack::new(&[2, 8, 2])?;
/// model.params.allocate(1337);
/// let mut adamw = AdamW::new(AdamWConfig::default(), &model.params);
/// let mut losses = Vec::new();
/// for _ in 0..100 {
///     model.params.zero_gradients();
///     let loss = model.loss(&[0.1, 0.9])?;
///     loss.backward()?;
///     let norm = global_norm(&model.params.gradients());
///     adamw.step(&model.params, 1e-2, clip_scale(norm, 1.0)?)?;
///     losses.push(loss.to_scalar::<f32>()?);
/// }
/// assert!(losses[99] < 0.01 * losses[0]);
/// assert_eq!(adamw.steps(), 100);
/// # anyhow::Ok(())
/// ```
pub struct AdamW {
    config: AdamWConfig,
    shard: Vec<Fragment>,
    /// Exponential means of the gradient and of its square.
    m: StateStore<f32>,
    v: StateStore<f32>,
    /// The values before rounding, if stored values are rounded.
    master: Option<StateStore<f32>>,
    steps: u64,
}

/// The state of consecutive elements of a parameter.
pub struct State<'a> {
    /// The weights in f32.
    pub values: &'a mut [f32],
    /// First moment: DeepSpeed's and PyTorch's `exp_avg`.
    pub exp_avg: &'a mut [f32],
    /// Second moment.
    pub exp_avg_sq: &'a mut [f32],
}

impl AdamW {
    /// An optimizer of all parameters of a model that is stored in f32.
    pub fn new(config: AdamWConfig, params: &Params) -> AdamW {
        let zeros = || StateStore::Memory(zeros(params.numel()));
        let shard = Fragment::of_range(params.specs(), 0..params.numel());
        AdamW {
            config,
            shard,
            m: zeros(),
            v: zeros(),
            master: None,
            steps: 0,
        }
    }

    /// An optimizer of a shard of parameters, which are stored as `T`. `begin` writes their initial
    /// values.
    ///
    /// # Errors
    /// If a file for offloaded state cannot be made or written.
    pub fn sharded<T: Stored>(
        config: AdamWConfig,
        shard: Vec<Fragment>,
        begin: InitialValues,
        offload: Option<&Offload>,
    ) -> Result<AdamW> {
        let zeros = || StateStore::zeros(Fragment::numel(&shard), offload);
        let m = zeros()?;
        let v = zeros()?;
        let master = match T::PRECISION {
            Precision::F32 => None,
            Precision::Bf16 => Some(initial_store(&shard, begin, offload)?),
        };
        Ok(AdamW { config, shard, m, v, master, steps: 0 })
    }

    /// Takes one step of all parameters, with the gradients times `scale`: 1, or the result of
    /// [`clip_scale`](super::clip_scale).
    ///
    /// # Errors
    /// If this rank does not hold all values and gradients in f32, or the caller holds a guard of
    /// them.
    #[track_caller]
    pub fn step(&mut self, params: &Params, lr: f64, scale: f32) -> Result<()> {
        let gradients = params.whole_gradients()?;
        self.update(&mut params.whole_mut()?[..], &gradients, lr, scale)
    }

    /// Takes one step of the shard. `values` and `gradients` are the shard's.
    ///
    /// # Errors
    /// If state in files cannot be read or written. Without files: never.
    pub fn update<T: Stored, G: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        gradients: &[G],
        lr: f64,
        scale: f32,
    ) -> Result<()> {
        self.steps += 1;
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        let rate = self.config.bias_rate as f32;
        self.visit(values, |fragment, elements, State { values, exp_avg, exp_avg_sq }| {
            let shrink = if fragment.spec.decays() { rule.shrink } else { 1.0 };
            let first = fragment.start + elements.start - fragment.elements.start;
            let gradients = &gradients[first..first + elements.len()];
            // A bias's gradient is the load of its expert above the mean, of which only the sign
            // counts: so it does not matter how loads were scaled, clipped or averaged as gradients
            // are.
            if fragment.spec.whole.part == Part::SelectionBias {
                let mut biases = values.iter_mut();
                G::read(gradients, |chunk| {
                    for (&above, bias) in chunk.iter().zip(&mut biases) {
                        if above != 0.0 {
                            *bias -= rate.copysign(above);
                        }
                    }
                });
                return;
            }
            let mut at = 0;
            G::read(gradients, |chunk| {
                let range = at..at + chunk.len();
                at = range.end;
                let moments = (&mut exp_avg[range.clone()], &mut exp_avg_sq[range.clone()]);
                vectorized!((&mut values[range], chunk, moments, &rule, shrink), update);
            });
        })
    }

    /// Calls `each` with every fragment of the shard, its elements in the parameter, and their
    /// state, which `each` may change. If the state is in files, a fragment comes in chunks.
    /// `values` are the shard's.
    ///
    /// # Errors
    /// If state in files cannot be read or written. Without files: never.
    pub fn visit<T: Stored>(
        &mut self,
        values: &mut (impl Windowed<T> + ?Sized),
        mut each: impl FnMut(&Fragment, Range<usize>, State),
    ) -> Result<()> {
        let AdamW { shard, m, v, master, .. } = self;
        for window in m.windows() {
            let mut m = m.window(window.clone())?;
            let mut v = v.window(window.clone())?;
            let mut stored = values.window(window.clone())?;
            let mut all = |values: &mut [f32]| {
                Fragment::in_window(shard, &window, |fragment, here, elements| {
                    let exp_avg = &mut m[here.clone()];
                    let exp_avg_sq = &mut v[here.clone()];
                    each(
                        fragment,
                        elements,
                        State { values: &mut values[here], exp_avg, exp_avg_sq },
                    );
                });
            };
            match master {
                None => T::change(&mut stored, all),
                Some(master) => {
                    let mut master = master.window(window.clone())?;
                    all(&mut master);
                    narrow(&master, &mut stored);
                }
            }
        }
        Ok(())
    }

    /// The fragments that the state belongs to.
    pub fn fragments(&self) -> &[Fragment] {
        &self.shard
    }

    /// The number of steps so far. A checkpoint stores it with the moments.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Continues after `steps` steps.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Bytes of the state.
    pub fn bytes(&self) -> StoredBytes {
        let all = [Some(&self.m), Some(&self.v), self.master.as_ref()];
        all.into_iter().flatten().map(StateStore::bytes).sum()
    }
}

/// The numbers of one step that are the same for all parameters.
struct Rule {
    betas: (f32, f32),
    /// `1 - beta`, for each beta.
    rests: (f32, f32),
    epsilon: f32,
    /// The learning rate divided by the first moment's bias correction.
    step_size: f32,
    /// 1 / the root of the second moment's bias correction.
    inverse_root: f32,
    /// The factor by which weight decay shrinks a weight.
    shrink: f32,
    /// The factor for gradients.
    scale: f32,
}

impl Rule {
    /// The numbers of step `steps`, counted from 1.
    fn new(config: &AdamWConfig, steps: u64, lr: f64, scale: f32) -> Rule {
        let AdamWConfig { beta1, beta2, epsilon, weight_decay, .. } = *config;
        let steps = i32::try_from(steps).unwrap_or(i32::MAX);
        let correction1 = 1.0 - beta1.powi(steps);
        let correction2 = 1.0 - beta2.powi(steps);
        // f64 up to here, because 1 - beta^t would lose digits in f32. The loops over the buffers
        // are f32.
        Rule {
            betas: (beta1 as f32, beta2 as f32),
            rests: ((1.0 - beta1) as f32, (1.0 - beta2) as f32),
            epsilon: epsilon as f32,
            step_size: (lr / correction1) as f32,
            inverse_root: (1.0 / correction2.sqrt()) as f32,
            shrink: (1.0 - lr * weight_decay) as f32,
            scale,
        }
    }
}

type Weights<'a> = (&'a mut [f32], &'a [f32], (&'a mut [f32], &'a mut [f32]), &'a Rule, f32);

/// Updates one parameter. Its weights first shrink by a factor, which is the weight decay.
#[inline(always)]
fn update((values, gradients, (m, v), rule, shrink): Weights) {
    for ((p, g), (m, v)) in values.iter_mut().zip(gradients).zip(m.iter_mut().zip(v)) {
        let g = g * rule.scale;
        *m = rule.betas.0 * *m + rule.rests.0 * g;
        *v = rule.betas.1 * *v + rule.rests.1 * g * g;
        *p = *p * shrink - rule.step_size * *m / (v.sqrt() * rule.inverse_root + rule.epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Copies, Cut, Init, Whole};

    /// Three steps against the formulas of the paper, in f64.
    #[test]
    fn steps_follow_the_formulas() {
        let params = Params::new();
        params.declare("matrix", &[1, 2], Init::Constant(0.5)).unwrap();
        params.declare("gain", &[2], Init::Constant(1.0)).unwrap();
        params.allocate(0);
        let (beta1, beta2) = (0.9, 0.99);
        let config = AdamWConfig { beta1, beta2, ..AdamWConfig::default() };
        let mut adamw = AdamW::new(config, &params);
        let mut p = [0.5, 0.5, 1.0, 1.0f64];
        let mut m = [0.0f64; 4];
        let mut v = [0.0f64; 4];
        for t in 1..=3 {
            let gradients = [0.1 * t as f32, -2.0, 1e-3, 0.0];
            params.gradients().copy_from_slice(&gradients);
            adamw.step(&params, 0.01, 0.5).unwrap();
            for i in 0..4 {
                let g = f64::from(gradients[i]) * 0.5;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.99 * v[i] + 0.01 * g * g;
                let m = m[i] / (1.0 - 0.9f64.powi(t));
                let v = v[i] / (1.0 - 0.99f64.powi(t));
                p[i] -= 0.01 * if i < 2 { 0.1 * p[i] } else { 0.0 };
                p[i] -= 0.01 * m / (v.sqrt() + 1e-8);
            }
        }
        for (got, expected) in params.values().iter().zip(p) {
            assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} but {expected}");
        }
    }

    /// By its sign alone: neither the learning rate nor the size counts, and no moment remains.
    #[test]
    fn a_bias_moves_against_its_load() {
        let params = Params::new();
        let whole = Whole::new("bias", &[3], Init::Constant(0.5));
        let whole = Whole { part: Part::SelectionBias, ..whole };
        params.declare_shard("bias", whole, Cut::All, Copies::One).unwrap();
        params.declare("gain", &[1], Init::Constant(1.0)).unwrap();
        params.allocate(0);
        let mut adamw = AdamW::new(AdamWConfig::default(), &params);
        params.gradients().copy_from_slice(&[3e-31, 0.0, -7.0, 0.0]);
        adamw.step(&params, 0.01, 0.25).unwrap();
        let mut values = params.values().to_vec();
        assert_eq!(values, [0.499, 0.5, 0.501, 1.0]);
        let moments = |_: &Fragment, _, state: State| {
            assert!(state.exp_avg.iter().chain(&*state.exp_avg_sq).all(|&moment| moment == 0.0));
        };
        adamw.visit(&mut values[..], moments).unwrap();
    }

    /// A learner forgets `drop(gradients)`: the step says so instead of waiting for ever.
    #[test]
    fn a_step_names_the_guard_that_is_still_held() {
        let params = Params::new();
        params.declare("w", &[2, 2], Init::Normal(0.02)).unwrap();
        params.allocate(1);
        let mut adamw = AdamW::new(AdamWConfig::default(), &params);
        let gradients = params.gradients();
        let here = format!("adamw.rs:{}:", line!() - 1);
        let error = adamw.step(&params, 0.1, 1.0).unwrap_err().to_string();
        assert!(error.contains(&here) && error.contains("drop(gradients)"), "{error}");
        drop(gradients);
        let values = params.values();
        let error = adamw.step(&params, 0.1, 1.0).unwrap_err().to_string();
        assert!(error.contains("drop(values)"), "{error}");
        drop(values);
        adamw.step(&params, 0.1, 1.0).unwrap();
        assert_eq!(adamw.steps(), 1);
    }
}
