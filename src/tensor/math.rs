//! Loops over numbers that the compiler can turn into vector instructions.
//!
//! [`vectorized!`](crate::simd) compiles a function for several instruction sets. It chooses the
//! machine's best at run time, because login and compute nodes differ. `SHARDLAB_SIMD=portable`
//! chooses instructions that every machine has. Only plain loops go in. Sums keep 16 partial sums
//! and add them in a fixed order, so every machine computes the same bits.

pub(crate) use crate::simd::vectorized;

pub const LANES: usize = 16;

/// e^x for finite x, within 2 units in the last place. Below -87 it returns the smallest normal
/// numbers, never 0.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 leaves the nearest integer in the low
    // bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    // ln 2 in two parts. The first has so few bits that its product with n is exact.
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    // The Taylor series up to r^7 / 7!. At the ends of the range it is 5e-9 away from e^r.
    let p = 1.0 / 5040.0;
    let p = p * r + 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    // 2^n: n goes into the exponent's bits.
    let power =
        f32::from_bits((shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127)) << 23);
    p * power
}

/// The sum of `x`.
#[inline(always)]
pub fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            lanes[l] += chunk[l];
        }
    }
    fold(lanes) + rest.iter().sum::<f32>()
}

/// The sum of `x[i] * y[i]`.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ys, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in xs.iter().zip(ys) {
        for l in 0..LANES {
            lanes[l] += x[l] * y[l];
        }
    }
    let rest: f32 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    fold(lanes) + rest
}

/// The largest element; negative infinity for an empty slice.
#[inline(always)]
pub fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            lanes[l] = larger(lanes[l], chunk[l]);
        }
    }
    let rest = rest.iter().fold(f32::NEG_INFINITY, |a, &b| larger(a, b));
    lanes.iter().fold(rest, |a, &b| larger(a, b))
}

/// Replaces every `x[i]` by `e^(x[i] - shift)`. Returns the new elements' sum.
#[inline(always)]
pub fn exp_sum(x: &mut [f32], shift: f32) -> f32 {
    x.iter_mut().for_each(|x| *x = exp(*x - shift));
    sum(x)
}

/// Replaces `x` by the softmax of `scale · x`. Returns the logarithm of the sum of all
/// `e^(scale · x[i])`.
#[inline(always)]
pub fn softmax(x: &mut [f32], scale: f32) -> f32 {
    x.iter_mut().for_each(|x| *x *= scale);
    let top = max(x);
    let sum = exp_sum(x, top);
    let share = 1.0 / sum;
    x.iter_mut().for_each(|p| *p *= share);
    top + sum.ln()
}

/// Turns a head's scores, a row for each query, into probabilities: row i becomes the softmax of
/// its first `seen + i + 1` numbers times `scale`, and 0 after them. Before the first query are
/// `seen` positions. Writes the logarithm that [`softmax`] returns of each row to `log_sums`.
pub fn causal_softmax(scores: &mut [f32], log_sums: &mut [f32], seen: usize, scale: f32) {
    vectorized!((scores, log_sums, seen, scale), softmax_of_rows);
}

#[inline(always)]
fn softmax_of_rows((scores, log_sums, seen, scale): (&mut [f32], &mut [f32], usize, f32)) {
    let columns = scores.len() / log_sums.len();
    for (i, (row, log_sum)) in scores.chunks_exact_mut(columns).zip(log_sums).enumerate() {
        let (seen, future) = row.split_at_mut(seen + i + 1);
        *log_sum = softmax(seen, scale);
        future.fill(0.0);
    }
}

/// The sum of all lanes, in halves.
#[inline(always)]
pub fn fold(lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    let mut lanes = lanes;
    while width > 0 {
        for l in 0..width {
            lanes[l] += lanes[l + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_exact_to_two_ulp() {
        for i in -86_999..88_000 {
            let x = i as f32 * 1e-3;
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "exp({x}) is off by {error:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1000.0) > 0.0 && exp(-1000.0) < 1e-37);
    }

    #[test]
    fn sums_take_every_element_once() {
        for n in 0..70 {
            let x: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            assert_eq!(sum(&x), (n * (n + 1) / 2) as f32);
            assert_eq!(dot(&x, &x), (n * (n + 1) * (2 * n + 1) / 6) as f32);
            assert_eq!(max(&x), if n == 0 { f32::NEG_INFINITY } else { n as f32 });
        }
    }

    #[inline(always)]
    fn everything((x, y): (&[f32], &mut [f32])) -> [f32; 4] {
        y.copy_from_slice(x);
        let shift = max(x);
        [sum(x), dot(x, x), shift, exp_sum(y, shift)]
    }

    /// This test calls the loops both ways, whatever the setting is.
    #[test]
    fn vector_instructions_change_no_bit() {
        for n in [0, 1, 15, 16, 17, 1000] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7919) % 1009) as f32 / 101.0 - 5.0).collect();
            let mut portable = vec![0.0; n];
            let mut wide = vec![0.0; n];
            let results = everything((&x, &mut portable));
            let in_vectors = crate::simd::in_widest_vectors(
                (&x[..], &mut wide[..]),
                #[inline(always)]
                |(x, y)| everything((x, y)),
            );
            assert_eq!(in_vectors, results);
            assert_eq!(wide, portable);
        }
    }

    #[test]
    fn a_nan_is_not_lost_in_a_sum() {
        assert!(sum(&[1.0, f32::NAN, 2.0]).is_nan());
    }
}
