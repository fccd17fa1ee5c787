//! The global norm of gradients. Its bits do not depend on how gradients are sharded among ranks.
//!
//! A sum of floating-point numbers depends on its order. A norm summed shard by shard would differ
//! in its last digits from the norm of the whole. The clipped gradients would then differ too, and
//! two runs that should be equal would drift apart. Here every square is first rounded to a
//! multiple of a unit. The unit depends only on the largest gradient and on the number of
//! gradients. It is so coarse that the sum of all squares is exact, so its order does not matter.
//! The remainders of the rounding are summed in the same way, with a finer unit. Together, the two
//! sums hold some 56 bits of each square for 16 million gradients.
//!
//! An example: with a unit of 4, the squares 9, 31 and 5 are rounded to 8, 32 and 4. The second sum
//! adds the remainders 1, -1 and 1.
//!
//! Source: J. Demmel, H. D. Nguyen, *Fast Reproducible Floating-Point Summation* (2013), with two
//! levels.

use crate::tensor::Stored;
use crate::tensor::math::vectorized;

/// The Euclidean norm of all gradients. It is NaN or infinite if a gradient is.
pub fn global_norm(gradients: &[f32]) -> f64 {
    stored_norm(&[gradients])
}

/// [`global_norm`] of gradients of any storage type, in several slices.
pub fn stored_norm<T: Stored>(gradients: &[&[T]]) -> f64 {
    let numel = gradients.iter().map(|slice| slice.len()).sum();
    let [coarse, fine] = sums(gradients, largest(gradients), numel);
    (coarse + fine).sqrt()
}

/// Two exact sums: of the squares rounded to a coarse unit, and of the remainders rounded to a fine
/// unit.
pub(crate) fn sums<T: Stored>(gradients: &[&[T]], largest: f32, numel: usize) -> [f64; 2] {
    let most = f64::from(largest) * f64::from(largest);
    if most == 0.0 || !most.is_finite() {
        return [most, 0.0];
    }
    // With this unit, the sum of `numel` numbers of at most `most` is less than 2^52 units.
    let room = 0.5f64.powi(50 - numel.max(1).next_power_of_two().ilog2() as i32);
    let coarse = most * room;
    let mut sums = [0.0; 2];
    for slice in gradients {
        T::read(slice, |chunk| {
            let more =
                vectorized!((chunk, [above(coarse), above(coarse * room)]), sums_of_rounded,);
            sums = [sums[0] + more[0], sums[1] + more[1]];
        });
    }
    sums
}

/// Adding this number and subtracting it again rounds to multiples of the next power of two above
/// `unit`.
fn above(unit: f64) -> f64 {
    // `unit` without its 52 fraction bits is a power of two. The next one is twice as large.
    let power = f64::from_bits((unit.to_bits() >> 52) << 52) * 2.0;
    1.5 * 2f64.powi(52) * power
}

const LANES: usize = 16;

/// All numbers in lanes that the compiler can compute at once. Zeros fill up the last ones.
#[inline(always)]
fn in_lanes(numbers: &[f32], mut each: impl FnMut(&[f32; LANES])) {
    let (chunks, rest) = numbers.as_chunks();
    // Given to `for_each`, `each` would be a value: see `vectorized!`.
    for chunk in chunks {
        each(chunk);
    }
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    each(&last);
}

#[inline(always)]
fn sums_of_rounded((gradients, [coarse, fine]): (&[f32], [f64; 2])) -> [f64; 2] {
    let mut high = [0.0; LANES];
    let mut low = [0.0; LANES];
    in_lanes(gradients, |gradients| {
        for lane in 0..LANES {
            let square = f64::from(gradients[lane]) * f64::from(gradients[lane]);
            let rounded = (square + coarse) - coarse;
            high[lane] += rounded;
            low[lane] += ((square - rounded) + fine) - fine;
        }
    });
    [high, low].map(|lanes| lanes.iter().sum())
}

/// The largest magnitude. NaN if a gradient is NaN.
pub(crate) fn largest<T: Stored>(gradients: &[&[T]]) -> f32 {
    let mut most = 0;
    for slice in gradients {
        T::read(slice, |chunk| most = most.max(vectorized!(chunk, largest_bits)));
    }
    f32::from_bits(most)
}

/// The bits of the largest magnitude. As integers, magnitudes have the same order as the numbers,
/// and NaNs are above infinity.
#[inline(always)]
fn largest_bits(gradients: &[f32]) -> u32 {
    let mut lanes = [0; LANES];
    in_lanes(gradients, |gradients| {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane].max(gradients[lane].abs().to_bits());
        }
    });
    lanes.into_iter().fold(0, u32::max)
}

/// The norm is NaN or infinite, so the step must not be taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the gradients' norm is {0}: this step would ruin all weights, and was not taken")]
pub struct NotFinite(pub f64);

/// The factor that clips gradients with this `norm` to the norm `clip`; `clip` 0 turns clipping
/// off. Refuses a norm that is not finite, because no factor makes such gradients useful.
///
/// # Errors
/// [`NotFinite`], if `norm` is NaN or infinite.
pub fn clip_scale(norm: f64, clip: f64) -> Result<f32, NotFinite> {
    if !norm.is_finite() {
        return Err(NotFinite(norm));
    }
    if clip > 0.0 {
        Ok((clip / (norm + 1e-6)).min(1.0) as f32) // PyTorch adds the same small number
    } else {
        Ok(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::random::Stream;

    /// Numbers of very different sizes.
    fn gradients(n: usize, seed: u64) -> Vec<f32> {
        let stream = Stream::new(seed, "norm");
        let number = |i: u64| {
            (stream.uniform(2 * i) - 0.5) * 10f64.powf(12.0 * stream.uniform(2 * i + 1) - 9.0)
        };
        (0..n as u64).map(|i| number(i) as f32).collect()
    }

    #[test]
    fn norms_are_what_they_should_be() {
        let x: Vec<f32> = (0..101).map(|i| i as f32).collect();
        assert_eq!(global_norm(&x), 338_350f64.sqrt());
        for (n, seed) in [(1, 1), (7, 2), (1000, 3), (100_003, 4)] {
            let g = gradients(n, seed);
            let plain = g.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
            assert!(
                (global_norm(&g) / plain - 1.0).abs() < 1e-13,
                "{n}: {} but {plain}",
                global_norm(&g)
            );
        }
        assert_eq!(global_norm(&[]), 0.0);
        assert_eq!(global_norm(&[0.0; 9]), 0.0);
        for tiny in [1e-30f32, f32::MIN_POSITIVE / 4.0, f32::MAX] {
            assert!(
                (global_norm(&[tiny, -tiny]) / (f64::from(tiny) * 2f64.sqrt()) - 1.0).abs() < 1e-15
            );
        }
    }

    #[test]
    fn what_is_no_number_is_not_lost() {
        let mut g = gradients(50, 9);
        g[37] = f32::NAN;
        assert!(global_norm(&g).is_nan());
        // f32::max(NaN, 0) is 0: the zeros after it must not replace it.
        assert!(global_norm(&[f32::NAN, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]).is_nan());
        g[37] = f32::NEG_INFINITY;
        assert_eq!(global_norm(&g), f64::INFINITY);
    }

    #[test]
    fn clipping_shortens_what_is_too_long() {
        assert_eq!(clip_scale(0.5, 1.0), Ok(1.0));
        assert_eq!(clip_scale(8.0, 0.0), Ok(1.0));
        assert!((clip_scale(4.0, 1.0).unwrap() - 0.25).abs() < 1e-6);
    }

    /// `torch.nn.utils.clip_grad_norm_` divides by the norm plus 1e-6, so a norm equal to the limit
    /// is clipped a little.
    #[test]
    fn clipping_adds_what_pytorch_adds() {
        assert_eq!(clip_scale(1.0, 1.0), Ok((1.0 / 1.000_001) as f32));
        assert_eq!(clip_scale(1e-6, 1e-6), Ok(0.5));
        assert_eq!(clip_scale(0.0, 1e-9), Ok(1e-3));
    }

    #[test]
    fn a_norm_that_is_not_finite_is_refused_with_and_without_clipping() {
        for norm in [f64::NAN, f64::INFINITY] {
            for clip in [0.0, 1.0] {
                assert!(clip_scale(norm, clip).is_err(), "{norm}, {clip}");
            }
        }
    }
}
