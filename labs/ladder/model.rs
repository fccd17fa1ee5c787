//! The model: layers of two matrices each, with GELU between them. Row by row, a layer computes
//! y = sum over its units u of gelu(a_u . x + c_u) b_u.
//!
//! A layer's parameters are one list, unit after unit: a_u, then c_u, then b_u. So a slice of whole
//! units is a layer by itself, and its result is one summand of y: Megatron's columns of the first
//! matrix, and rows of the second.

use shardlab::tensor::random::Stream;

/// Numbers in a row of a layer's input, and of its output, but for the last layer: that one has a
/// number per character.
pub const WIDTH: usize = 32;
/// Units of a layer.
pub const UNITS: usize = 64;
/// Layers of the model.
pub const LAYERS: usize = 8;
const SEED: u64 = 7;

/// Numbers in a row of a layer's output.
pub(crate) fn outputs(layer: usize, vocabulary: usize) -> usize {
    if layer + 1 == LAYERS { vocabulary } else { WIDTH }
}

/// Parameters of one unit.
pub fn unit(layer: usize, vocabulary: usize) -> usize {
    WIDTH + 1 + outputs(layer, vocabulary)
}

/// Parameters of a layer.
pub fn numel(layer: usize, vocabulary: usize) -> usize {
    UNITS * unit(layer, vocabulary)
}

/// A layer's parameters before the first step.
pub(crate) fn initial(layer: usize, vocabulary: usize) -> Vec<f32> {
    let stream = Stream::new(SEED, "weights").branch(layer as u64);
    let unit = unit(layer, vocabulary);
    let parameter = |i: usize| {
        let scale = match i % unit {
            0..WIDTH => (1.0 / WIDTH as f64).sqrt(),
            WIDTH => 0.0,
            _ => (2.0 / UNITS as f64).sqrt(),
        };
        (scale * stream.normal(i as u64)) as f32
    };
    (0..UNITS * unit).map(parameter).collect()
}

/// gelu(h), by tanh, and its derivative.
fn gelu(h: f32) -> (f32, f32) {
    const SCALE: f32 = 0.797_884_6; // the square root of 2 / pi
    const CUBE: f32 = 0.044_715;
    let tanh = (SCALE * (h + CUBE * h * h * h)).tanh();
    let inner = SCALE * (1.0 + 3.0 * CUBE * h * h);
    let slope = 0.5 * (1.0 + tanh) + 0.5 * h * (1.0 - tanh * tanh) * inner;
    (0.5 * h * (1.0 + tanh), slope)
}

fn dot(x: &[f32], y: &[f32]) -> f32 {
    // Eight sums at a time, so that the compiler can use vectors.
    let mut sums = [0.0; 8];
    for (x, y) in x.chunks_exact(8).zip(y.chunks_exact(8)) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest = x.len() / 8 * 8;
    let tail: f32 = x[rest..].iter().zip(&y[rest..]).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + tail
}

fn add_scaled(sum: &mut [f32], scale: f32, x: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(x) {
        *sum += scale * x;
    }
}

/// The sum over the given units, for rows of `WIDTH` numbers: rows of `outputs` numbers.
pub(crate) fn forward(units: &[f32], outputs: usize, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0.0; x.len() / WIDTH * outputs];
    for (x, y) in x.chunks_exact(WIDTH).zip(y.chunks_exact_mut(outputs)) {
        for unit in units.chunks_exact(WIDTH + 1 + outputs) {
            let (h, _) = gelu(dot(&unit[..WIDTH], x) + unit[WIDTH]);
            add_scaled(y, h, &unit[WIDTH + 1..]);
        }
    }
    y
}

/// The gradients of `x`, as far as it went through these units, and of the units. Computes the
/// units' values again, so that the input is all that has to be kept.
pub(crate) fn backward(
    units: &[f32],
    outputs: usize,
    x: &[f32],
    dy: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let mut dx = vec![0.0; x.len()];
    let mut gradients = vec![0.0; units.len()];
    let rows = x.chunks_exact(WIDTH).zip(dx.chunks_exact_mut(WIDTH));
    for ((x, dx), dy) in rows.zip(dy.chunks_exact(outputs)) {
        let len = WIDTH + 1 + outputs;
        let units = units.chunks_exact(len);
        for (unit, gradient) in units.zip(gradients.chunks_exact_mut(len)) {
            let (h, slope) = gelu(dot(&unit[..WIDTH], x) + unit[WIDTH]);
            let dh = dot(&unit[WIDTH + 1..], dy) * slope;
            add_scaled(&mut gradient[..WIDTH], dh, x);
            gradient[WIDTH] += dh;
            add_scaled(&mut gradient[WIDTH + 1..], h, dy);
            add_scaled(dx, dh, &unit[..WIDTH]);
        }
    }
    (dx, gradients)
}

/// The mean cross-entropy of the rows of `y`, and its gradient.
pub(crate) fn loss(y: &[f32], targets: &[u32]) -> (f64, Vec<f32>) {
    let rows = targets.len();
    let vocabulary = y.len() / rows;
    let mut sum = 0.0;
    let mut dy = Vec::with_capacity(y.len());
    for (y, &target) in y.chunks_exact(vocabulary).zip(targets) {
        let most = y.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = y.iter().map(|y| (y - most).exp()).sum();
        sum += f64::from(total.ln() + most - y[target as usize]);
        for (i, y) in y.iter().enumerate() {
            let right = if i == target as usize { 1.0 } else { 0.0 };
            dy.push(((y - most).exp() / total - right) / rows as f32);
        }
    }
    (sum / rows as f64, dy)
}
