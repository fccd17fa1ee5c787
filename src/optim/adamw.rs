//! AdamW on flat buffers.

use crate::tensor::math::vectorized;
use crate::tensor::{Group, Params, Stored};

/// The optimizer's settings; the learning rate comes with every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWConfig {
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    /// Applied to parameters with two dimensions only: norm gains do not decay.
    pub weight_decay: f64,
}

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101): Adam's step, and weights that shrink on their own.
///
/// Its state, two moments for every parameter, lies in flat buffers of the parameters' layout: twice the parameters'
/// memory, and what ZeRO-1 cuts into shards.
pub struct AdamW {
    config: AdamWConfig,
    pieces: Vec<Piece>,
    /// Exponential means of the gradient and of its square.
    m: Vec<f32>,
    v: Vec<f32>,
    steps: i32,
}

/// A stretch of what an optimizer works on: a parameter group, or what a rank holds of a parameter.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub len: usize,
    pub decays: bool,
}

impl AdamW {
    pub fn new(config: AdamWConfig, params: &Params) -> AdamW {
        let piece = |group: Group| Piece { len: group.range.len(), decays: group.decays };
        let (pieces, n) = (params.groups().into_iter().map(piece).collect(), params.numel());
        AdamW { config, pieces, m: vec![0.0; n], v: vec![0.0; n], steps: 0 }
    }

    /// Bytes of the two moments.
    pub fn bytes(&self) -> usize {
        size_of::<f32>() * (self.m.capacity() + self.v.capacity())
    }

    /// One step with the gradients times `scale` (1, or what clipping asks for).
    pub fn step(&mut self, params: &Params, lr: f64, scale: f32) {
        self.steps += 1;
        let rule = Rule::new(&self.config, self.steps, lr, scale);
        let (mut values, gradients) = (params.values_mut(), params.gradients());
        update_pieces(&rule, &self.pieces, 0, &mut values, &gradients, Moments { m: &mut self.m, v: &mut self.v });
    }
}

/// Exponential means of gradients and of their squares, of as many parameters.
pub(crate) struct Moments<'a> {
    pub m: &'a mut [f32],
    pub v: &'a mut [f32],
}

/// Updates a stretch of a share: its elements from `from` on, which are all that the slices hold.
pub(crate) fn update_pieces<T: Stored>(
    rule: &Rule,
    pieces: &[Piece],
    from: usize,
    values: &mut [f32],
    gradients: &[T],
    Moments { m, v }: Moments,
) {
    let (mut start, end) = (0, from + values.len());
    for Piece { len, decays } in pieces {
        let common = start.max(from)..(start + len).min(end);
        start += len;
        if common.is_empty() {
            continue;
        }
        let shrink = if *decays { rule.shrink } else { 1.0 };
        let mut at = common.start - from;
        T::read(&gradients[at..common.end - from], |stretch| {
            let range = at..at + stretch.len();
            at = range.end;
            let moments = (&mut m[range.clone()], &mut v[range.clone()]);
            vectorized((&mut values[range], stretch, moments, rule, shrink), update);
        });
    }
}

/// One step's numbers, the same for all parameters.
pub(crate) struct Rule {
    betas: (f32, f32),
    /// 1 - beta.
    rests: (f32, f32),
    epsilon: f32,
    /// The learning rate over the first moment's correction.
    step_size: f32,
    /// 1 over the root of the second moment's correction.
    inverse_root: f32,
    /// What weight decay leaves of a weight.
    shrink: f32,
    /// Of the gradients.
    scale: f32,
}

impl Rule {
    /// Those of step number `steps`, from 1.
    pub fn new(config: &AdamWConfig, steps: i32, lr: f64, scale: f32) -> Rule {
        let AdamWConfig { beta1, beta2, epsilon, weight_decay } = *config;
        let correction1 = 1.0 - beta1.powi(steps);
        let correction2 = 1.0 - beta2.powi(steps);
        // In f64 until here, so that 1 - beta^t loses nothing; what runs over the buffers is f32.
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

type Update<'a> = (&'a mut [f32], &'a [f32], (&'a mut [f32], &'a mut [f32]), &'a Rule, f32);

/// The update of one parameter, whose weights first shrink by a factor.
#[inline(always)]
fn update((values, gradients, (m, v), rule, shrink): Update) {
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
    use crate::tensor::Init;

    /// Three steps against the formulas of the paper, in f64.
    #[test]
    fn steps_follow_the_formulas() {
        let params = Params::new();
        params.declare("matrix", &[1, 2], Init::Constant(0.5)).unwrap();
        params.declare("gain", &[2], Init::Constant(1.0)).unwrap();
        params.allocate(0);
        let config = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
        let mut adamw = AdamW::new(config, &params);
        let (mut p, mut m, mut v) = ([0.5, 0.5, 1.0, 1.0f64], [0.0f64; 4], [0.0f64; 4]);
        for t in 1..=3 {
            let gradients = [0.1 * t as f32, -2.0, 1e-3, 0.0];
            params.gradients().copy_from_slice(&gradients);
            adamw.step(&params, 0.01, 0.5);
            for i in 0..4 {
                let g = f64::from(gradients[i]) * 0.5;
                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.99 * v[i] + 0.01 * g * g;
                let (m, v) = (m[i] / (1.0 - 0.9f64.powi(t)), v[i] / (1.0 - 0.99f64.powi(t)));
                p[i] -= 0.01 * if i < 2 { 0.1 * p[i] } else { 0.0 };
                p[i] -= 0.01 * m / (v.sqrt() + 1e-8);
            }
        }
        for (got, expected) in params.values().iter().zip(p) {
            assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} but {expected}");
        }
    }
}
