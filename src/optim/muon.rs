//! Muon on whole matrices: the momentum of a matrix, made orthogonal, is its step.
//!
//! AdamW works number by number, so any slice of a parameter can be updated by itself. Here each
//! number of a step depends on the whole matrix.

use super::norm::global_norm;
use crate::named::named;
use crate::tensor::math::vectorized;
use crate::tensor::matmul::{Matrix, Write, matmul, product, transposed};

/// The optimizer's settings. Every step passes its own learning rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonConfig {
    /// How much of the momentum a step keeps.
    pub momentum: f64,
    /// Whether a step looks ahead: it then goes along the gradient moved towards the momentum,
    /// and not along the momentum itself.
    pub nesterov: bool,
    /// What makes a matrix orthogonal.
    pub newton_schulz: NewtonSchulz,
    /// How the learning rate follows from a matrix's shape.
    pub scale: MuonScale,
    /// Whether q, k and v, which lie in one matrix one after the other, are three matrices.
    pub split_qkv: bool,
    pub weight_decay: f64,
}

impl Default for MuonConfig {
    /// Keller Jordan's, with Moonlight's rate, which is AdamW's.
    fn default() -> MuonConfig {
        MuonConfig {
            momentum: 0.95,
            nesterov: true,
            newton_schulz: NewtonSchulz::Jordan,
            scale: MuonScale::MatchRmsAdamw,
            split_qkv: true,
            weight_decay: 0.1,
        }
    }
}

named! {
    /// Newton-Schulz's iteration `X ← aX + b(XXᵀ)X + c(XXᵀ)²X`, which moves every singular value of
    /// a matrix towards 1 and needs only products.
    pub enum NewtonSchulz by default Jordan {
        /// Five times with coefficients that raise small singular values fast, and end near 1
        /// (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024)
        Jordan = "jordan",
        /// Eight of those, then two that arrive at 1 (DeepSeek-V4's report)
        DeepSeekV4 = "deepseek-v4",
    }
}

impl NewtonSchulz {
    /// The coefficients a, b, c of each iteration.
    pub fn coefficients(self) -> impl Iterator<Item = [f32; 3]> {
        let (fast, arriving) = match self {
            NewtonSchulz::Jordan => (5, 0),
            NewtonSchulz::DeepSeekV4 => (8, 2),
        };
        let fast = std::iter::repeat_n([3.4445, -4.775, 2.0315], fast);
        fast.chain(std::iter::repeat_n([2.0, -1.5, 0.5], arriving))
    }
}

named! {
    /// The factor of the learning rate for a matrix of `rows` and `cols`, as `torch.optim.Muon`
    /// names it.
    pub enum MuonScale by default MatchRmsAdamw {
        /// √max(1, rows / cols): Jordan's
        Original = "original",
        /// 0.2 √max(rows, cols): Moonlight's (arXiv 2502.16982). A number's step is then as long as
        /// AdamW's usually is, so that AdamW's learning rates hold
        MatchRmsAdamw = "match-rms-adamw",
        /// √(rows / cols)
        SpectralUnclamped = "spectral-unclamped",
    }
}

impl MuonScale {
    /// The factor.
    pub fn factor(self, [rows, cols]: [usize; 2]) -> f64 {
        let (rows, cols) = (rows as f64, cols as f64);
        match self {
            MuonScale::Original => (rows / cols).max(1.0).sqrt(),
            MuonScale::MatchRmsAdamw => 0.2 * rows.max(cols).sqrt(),
            MuonScale::SpectralUnclamped => (rows / cols).sqrt(),
        }
    }
}

impl MuonConfig {
    /// One step of a whole matrix. Its gradient counts times `scale`.
    ///
    /// # Panics
    ///
    /// If the slices are not as long as the shape says.
    pub fn step(
        &self,
        values: &mut [f32],
        momentum: &mut [f32],
        gradient: &[f32],
        shape: [usize; 2],
        lr: f64,
        scale: f32,
    ) {
        let numel = shape[0] * shape[1];
        let lengths = [values.len(), momentum.len(), gradient.len()];
        assert_eq!(lengths, [numel; 3], "a matrix of {shape:?}");
        let mut towards = vec![0.0; numel];
        self.aim(&mut towards, momentum, gradient, scale);
        self.walk(values, &orthogonal(&towards, shape, self.newton_schulz), shape, lr);
    }

    /// Updates the momentum of any elements of a matrix, and writes to `towards` what a step goes
    /// along before it is made orthogonal. The gradient counts times `scale`.
    pub(super) fn aim(
        &self,
        towards: &mut [f32],
        momentum: &mut [f32],
        gradient: &[f32],
        scale: f32,
    ) {
        let (keep, rest) = (self.momentum as f32, (1.0 - self.momentum) as f32);
        let ahead = if self.nesterov { rest } else { 0.0 };
        vectorized!((towards, momentum, gradient, [keep, rest, ahead, scale]), direction);
    }

    /// Moves any elements of a matrix of `shape` by their part of the orthogonal `step`.
    pub(super) fn walk(&self, values: &mut [f32], step: &[f32], shape: [usize; 2], lr: f64) {
        let by = (lr * self.scale.factor(shape)) as f32;
        let shrink = (1.0 - lr * self.weight_decay) as f32;
        vectorized!((values, step, [shrink, by]), walk);
    }
}

/// Updates the momentum, and writes what a step goes along.
#[inline(always)]
fn direction(
    (towards, momentum, gradient, [keep, rest, ahead, scale]): (
        &mut [f32],
        &mut [f32],
        &[f32],
        [f32; 4],
    ),
) {
    for ((u, m), g) in towards.iter_mut().zip(momentum).zip(gradient) {
        let g = g * scale;
        *m = keep * *m + rest * g;
        *u = *m + ahead * (g - *m);
    }
}

#[inline(always)]
fn walk((values, step, [shrink, by]): (&mut [f32], &[f32], [f32; 2])) {
    for (p, x) in values.iter_mut().zip(step) {
        *p = *p * shrink - by * x;
    }
}

/// The matrix nearest to `matrix` whose rows (or columns, if it is tall) are orthogonal and of
/// length 1, as far as `steps` come near it.
///
/// # Panics
///
/// If `matrix` is not as long as its shape says.
pub fn orthogonal(matrix: &[f32], [rows, cols]: [usize; 2], steps: NewtonSchulz) -> Vec<f32> {
    // No singular value is above the norm, and the iteration needs them to be at most 1.
    let unit = 1.0 / global_norm(matrix).max(1e-7) as f32;
    let mut x: Vec<f32> = matrix.iter().map(|number| number * unit).collect();
    // Fewer rows than columns, so that the product with its own transpose is the small one.
    let (short, long) = (rows.min(cols), rows.max(cols));
    let mut turned = vec![0.0; x.len()];
    if rows > cols {
        transposed(Matrix::new(&x, rows, cols), &mut turned);
        std::mem::swap(&mut x, &mut turned);
    }
    // ANCHOR: heart
    for [a, b, c] in steps.coefficients() {
        let view = Matrix::new(&x, short, long);
        let gram = product(view, transposed(view, &mut turned));
        // b·G + c·G², and a more on the diagonal: all three terms are one product with X.
        let square = Matrix::new(&gram, short, short);
        let mut polynomial = product(square, square);
        for (i, (p, g)) in polynomial.iter_mut().zip(&gram).enumerate() {
            *p = b * g + c * *p + if i % (short + 1) == 0 { a } else { 0.0 };
        }
        let polynomial = Matrix::new(&polynomial, short, short);
        matmul(&mut turned, long, Write::Replace, polynomial, view);
        std::mem::swap(&mut x, &mut turned);
    }
    // ANCHOR_END: heart
    if rows > cols {
        transposed(Matrix::new(&x, short, long), &mut turned);
        std::mem::swap(&mut x, &mut turned);
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `torch.optim.Muon` of PyTorch 2.15 has after six steps, in float64: `nesterov`, weight
    /// decay, rule, number of the shape, norm, first eight numbers. Start values and gradients
    /// are those of `start` and `gradient`.
    const TORCH: &str = include_str!("torch_muon.txt");
    const SHAPES: [[usize; 2]; 4] = [[8, 8], [16, 4], [4, 16], [32, 12]];

    fn start(j: usize, k: usize) -> f32 {
        (0.1 * (1.0 + 0.37 * k as f64 + 0.5 * j as f64).sin()) as f32
    }

    fn gradient(j: usize, k: usize, step: usize) -> f32 {
        let at = k as f64;
        let wave = (0.3 * at + 0.9 * step as f64 + j as f64).cos() * (1.0 + 0.01 * at);
        (wave + 0.2 * (1.7 * at * at % 13.0).sin()) as f32
    }

    #[test]
    fn six_steps_are_those_of_pytorch() {
        assert_eq!(TORCH.lines().count(), 48);
        for line in TORCH.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [nesterov, decay, rule, j, figures @ ..] = &words[..] else {
                panic!("{line}")
            };
            let scale = match *rule {
                "original" => MuonScale::Original,
                "match_rms_adamw" => MuonScale::MatchRmsAdamw,
                "spectral_unclamped" => MuonScale::SpectralUnclamped,
                rule => panic!("{rule}"),
            };
            let config = MuonConfig {
                nesterov: *nesterov == "True",
                weight_decay: decay.parse().unwrap(),
                scale,
                ..MuonConfig::default()
            };
            let j: usize = j.parse().unwrap();
            let numel = SHAPES[j][0] * SHAPES[j][1];
            let mut values: Vec<f32> = (0..numel).map(|k| start(j, k)).collect();
            let mut momentum = vec![0.0; numel];
            for step in 0..6 {
                let gradients: Vec<f32> = (0..numel).map(|k| 2.0 * gradient(j, k, step)).collect();
                config.step(&mut values, &mut momentum, &gradients, SHAPES[j], 0.02, 0.5);
            }
            let norm = values.iter().map(|&p| f64::from(p).powi(2)).sum::<f64>().sqrt();
            let got = [norm].into_iter().chain(values.iter().map(|&p| f64::from(p)));
            for (got, expected) in got.zip(figures) {
                let off = got - expected.parse::<f64>().unwrap();
                assert!(off.abs() < 1e-6, "{off:e} in {line}");
            }
        }
    }

    /// DeepSeek-V4's ten steps arrive: rows of length 1, at right angles. Jordan's five stay near.
    #[test]
    fn singular_values_come_to_one() {
        let [rows, cols] = [6, 40];
        let matrix: Vec<f32> = (0..rows * cols).map(|k| gradient(1, k, 2)).collect();
        for (steps, bound) in [(NewtonSchulz::Jordan, 0.5), (NewtonSchulz::DeepSeekV4, 1e-3)] {
            let x = orthogonal(&matrix, [rows, cols], steps);
            let gram = product(Matrix::new(&x, rows, cols), Matrix::new(&x, rows, cols).t());
            let off = |(i, &g): (usize, &f32)| (g - f32::from(i % (rows + 1) == 0)).abs();
            let worst = gram.iter().enumerate().map(off).fold(0.0, f32::max);
            assert!(worst < bound, "{steps:?}: {worst}");
        }
    }

    /// A matrix without a gradient has no direction to go.
    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(orthogonal(&[0.0; 6], [3, 2], NewtonSchulz::Jordan), [0.0; 6]);
    }

    /// The trap of a cut matrix (DeepSpeed #7807): its halves are made orthogonal each by itself,
    /// and together they are another step.
    #[test]
    fn halves_of_a_matrix_make_another_step() {
        let matrix: Vec<f32> = (0..64).map(|k| gradient(0, k, 0)).collect();
        let whole = orthogonal(&matrix, [8, 8], NewtonSchulz::DeepSeekV4);
        let half =
            |half: usize| orthogonal(&matrix[half * 32..][..32], [4, 8], NewtonSchulz::DeepSeekV4);
        let halves = [half(0), half(1)].concat();
        let off = whole.iter().zip(&halves).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(off > 0.1, "{off}");
    }
}
