//! The product of few rows with a matrix, as each new token of a generation needs it.
//!
//! A general product copies parts of the matrix into an order that its kernel likes, and many rows
//! pay for that. With one row every weight is used once, and reading the weights is all the work:
//! the loops here read each once, in the type in which it is stored.

use super::math::{LANES, fold, vectorized};
use super::profile::{self, Products};
use super::stored::Stored;
use half::bf16;

/// The most rows for which [`few_rows`] is the faster product.
pub const FEW: usize = 4;

/// A weight as it is stored.
pub enum Numbers<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

/// Writes `x · Wᵀ` for `x` of up to [`FEW`] rows and a `weight` with rows of `ins` numbers. Rows of
/// `y` begin `stride` numbers apart.
pub fn few_rows(y: &mut [f32], stride: usize, x: &[f32], weight: Numbers, ins: usize) {
    match weight {
        Numbers::F32(weight) => counted(y, stride, x, weight, ins),
        Numbers::Bf16(weight) => counted(y, stride, x, weight, ins),
    }
}

fn counted<T: Stored>(y: &mut [f32], stride: usize, x: &[f32], weight: &[T], ins: usize) {
    let rows = x.len() / ins.max(1);
    let outs = weight.len() / ins.max(1);
    let counts = Products {
        flops: 2 * (x.len() * outs) as u64,
        bytes: (size_of_val(weight) + size_of::<f32>() * (x.len() + rows * outs)) as u64,
    };
    profile::matmul(counts, || {
        for (row, x) in x.chunks(2 * ins).enumerate() {
            let y = &mut y[2 * row * stride..];
            if x.len() == 2 * ins {
                vectorized!((y, stride, x, weight, ins), product::<T, 2, 2>);
            } else {
                vectorized!((y, stride, x, weight, ins), product::<T, 1, 4>);
            }
        }
    });
}

/// N rows of x, with W rows of the weight at a time: enough sums at once to hide an addition's
/// latency.
#[inline(always)]
fn product<T: Stored, const N: usize, const W: usize>(
    (y, stride, x, weight, ins): (&mut [f32], usize, &[f32], &[T], usize),
) {
    let outs = weight.len() / ins;
    let whole = ins - ins % LANES;
    for first in (0..outs).step_by(W) {
        let w: [&[T]; W] =
            std::array::from_fn(|i| &weight[(first + i).min(outs - 1) * ins..][..ins]);
        let mut sums = [[[0f32; LANES]; W]; N];
        for at in (0..whole).step_by(LANES) {
            let w: [&[T; LANES]; W] = w.map(|w| lanes(w, at));
            for n in 0..N {
                let x: &[f32; LANES] = lanes(&x[n * ins..][..ins], at);
                for i in 0..W {
                    for l in 0..LANES {
                        sums[n][i][l] += x[l] * w[i][l].widen();
                    }
                }
            }
        }
        for n in 0..N {
            for i in 0..W.min(outs - first) {
                let rest: f32 = (whole..ins).map(|at| x[n * ins + at] * w[i][at].widen()).sum();
                y[n * stride + first + i] = fold(sums[n][i]) + rest;
            }
        }
    }
}

#[inline(always)]
fn lanes<T>(row: &[T], at: usize) -> &[T; LANES] {
    match row[at..at + LANES].try_into() {
        Ok(lanes) => lanes,
        Err(_) => unreachable!("the slice has this length"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of rows, also sizes that no vector divides, in both types.
    #[test]
    fn few_rows_follow_the_definition() {
        let number = |i: usize| ((i * 37) % 19) as f32 - 9.0;
        for (n, ins, outs) in [(1, 40, 7), (2, 16, 4), (3, 5, 9), (4, 33, 1)] {
            let x: Vec<f32> = (0..n * ins).map(number).collect();
            let weight: Vec<f32> = (0..outs * ins).map(|i| number(i + 5)).collect();
            let half: Vec<bf16> = weight.iter().map(|&w| bf16::from_f32(w)).collect();
            let stride = outs + 3;
            for numbers in [Numbers::F32(&weight), Numbers::Bf16(&half)] {
                let mut y = vec![0.5; n * stride];
                few_rows(&mut y, stride, &x, numbers, ins);
                for (i, y) in y.iter().enumerate() {
                    let row = i / stride;
                    let out = i % stride;
                    let expected = (0..ins)
                        .map(|k| x[row * ins + k] * weight[out.min(outs - 1) * ins + k])
                        .sum();
                    assert_eq!(
                        *y,
                        if out < outs { expected } else { 0.5 },
                        "row {row}, output {out} of {n} x {outs}"
                    );
                }
            }
        }
    }
}
