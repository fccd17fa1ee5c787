//! How far apart two vectors are: losses, parameters, moments, gradients, logits.
//!
//! A comparison written by hand, `a.iter().zip(b).fold(0.0, …max…)`, passes where it should fail:
//! `zip` stops at the end of the shorter vector, `f64::max` drops a NaN, and nothing compared with
//! nothing does not differ. Here all three are an infinite difference. It is infinite, and not NaN,
//! because infinity is below no bound and remains the largest in `max`, in a sort and in an
//! all-reduce.

/// The largest difference between elements with the same index. It is infinite if the vectors have
/// different lengths or no elements, or if an element is NaN, even if both are. Equal infinities do
/// not differ.
pub fn largest_difference<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> f64 {
    largest(a, b, |a, b| (a - b).abs())
}

/// [`largest_difference`], with each difference divided by the size of the expected element. It is
/// also infinite where 0 is expected and anything else is found.
pub fn largest_relative_difference<T: Copy + Into<f64>>(found: &[T], expected: &[T]) -> f64 {
    largest(found, expected, |found, expected| (found - expected).abs() / expected.abs())
}

fn largest<T: Copy + Into<f64>>(a: &[T], b: &[T], difference: fn(f64, f64) -> f64) -> f64 {
    if a.len() != b.len() || a.is_empty() {
        return f64::INFINITY;
    }
    let mut largest = 0.0;
    for (a, b) in a.iter().zip(b) {
        let a: f64 = (*a).into();
        let b: f64 = (*b).into();
        // The difference of equal infinities would be NaN.
        let apart = if a == b { 0.0 } else { difference(a, b) };
        if apart.is_nan() {
            return f64::INFINITY;
        }
        if apart > largest {
            largest = apart;
        }
    }
    largest
}

/// The norm of the difference, divided by the expected norm: how far apart two gradients are. It is
/// infinite if the vectors have different lengths or no elements, or if an element is not finite.
pub fn relative_norm(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() || found.is_empty() {
        return f64::INFINITY;
    }
    let mut apart = 0.0;
    let mut whole = 0.0;
    for (&found, &expected) in found.iter().zip(expected) {
        let expected = f64::from(expected);
        apart += (f64::from(found) - expected).powi(2);
        whole += expected.powi(2);
    }
    let relative = apart.sqrt() / whole.sqrt().max(f64::MIN_POSITIVE);
    if relative.is_nan() { f64::INFINITY } else { relative }
}

/// Whether two vectors hold the same bits. They do not if they have different lengths or no
/// elements, or if an element is NaN, even if both are.
pub fn same_bits<T: Copy + Into<f64>>(a: &[T], b: &[T]) -> bool {
    // Different numbers of a narrower type remain different as f64, and so do 0 and -0.
    let same = |(a, b): (&T, &T)| {
        let a: f64 = (*a).into();
        let b: f64 = (*b).into();
        a.to_bits() == b.to_bits() && !a.is_nan()
    };
    a.len() == b.len() && !a.is_empty() && a.iter().zip(b).all(same)
}

/// What every comparison with `good` must refuse: a NaN at each index, a missing first or last
/// element, no elements. For tests of comparisons, here and in labs.
pub fn damaged(good: &[f64]) -> Vec<Vec<f64>> {
    let mut all = vec![good[1..].to_vec(), good[..good.len() - 1].to_vec(), Vec::new()];
    for i in 0..good.len() {
        let mut nan = good.to_vec();
        nan[i] = f64::NAN;
        all.push(nan);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    const NAN: f64 = f64::NAN;
    const INFINITY: f64 = f64::INFINITY;

    #[test]
    fn the_largest_difference_is_found_wherever_it_is() {
        assert_eq!(largest_difference(&[1.0, -2.0, 3.0], &[1.5, 2.0, 3.0]), 4.0);
        assert_eq!(largest_difference(&[1f32, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(largest_difference(&[0.0], &[-0.0]), 0.0);
        assert_eq!(largest_difference(&[bf16::ONE], &[bf16::NEG_ONE]), 2.0);
        assert_eq!(largest_relative_difference(&[3.0, 9.0], &[-2.0, 8.0]), 2.5);
        assert_eq!(largest_relative_difference(&[0.0, 1.0], &[0.0, 1.0]), 0.0);
        assert_eq!(largest_relative_difference(&[1e-30], &[0.0]), INFINITY);
    }

    /// Where a fold over `zip` would say 0.
    #[test]
    fn nan_a_missing_element_and_nothing_at_all_are_differences() {
        let good = [1.0, 2.0, 3.0];
        for bad in damaged(&good) {
            assert_eq!(largest_difference(&good, &bad), INFINITY, "{bad:?}");
            assert_eq!(largest_difference(&bad, &good), INFINITY, "{bad:?}");
            assert_eq!(largest_relative_difference(&good, &bad), INFINITY, "{bad:?}");
            assert_eq!(largest_relative_difference(&bad, &good), INFINITY, "{bad:?}");
            assert!(!same_bits(&good, &bad) && !same_bits(&bad, &good), "{bad:?}");
        }
        for (a, b) in [(NAN, NAN), (INFINITY, -INFINITY), (INFINITY, 1.0), (1.0, -INFINITY)] {
            assert_eq!(largest_difference(&[0.0, a], &[0.0, b]), INFINITY, "{a} {b}");
            assert_eq!(largest_relative_difference(&[0.0, a], &[0.0, b]), INFINITY, "{a} {b}");
            assert!(!same_bits(&[a], &[b]), "{a} {b}");
        }
        let nothing: [f32; 0] = [];
        assert_eq!(largest_difference(&nothing, &nothing), INFINITY);
        assert!(!same_bits(&nothing, &nothing));
        assert_eq!(largest_difference(&[INFINITY, 1.0], &[INFINITY, 1.0]), 0.0);
    }

    #[test]
    fn a_norm_that_is_not_a_number_or_lacks_some_is_infinitely_far() {
        assert_eq!(relative_norm(&[3.0, 4.5], &[3.0, 4.0]), 0.1);
        assert_eq!(relative_norm(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
        assert!(relative_norm(&[1.0], &[0.0]) > 1e300);
        let good = [3.0, 4.0];
        for bad in damaged(&[3.0, 4.0]) {
            let bad: Vec<f32> = bad.into_iter().map(|x| x as f32).collect();
            assert_eq!(relative_norm(&bad, &good), INFINITY, "{bad:?}");
            assert_eq!(relative_norm(&good, &bad), INFINITY, "{bad:?}");
        }
        let infinite = [f32::INFINITY, 4.0];
        assert_eq!(relative_norm(&infinite, &good), INFINITY);
        assert_eq!(relative_norm(&good, &infinite), INFINITY);
    }

    #[test]
    fn bits_are_compared_to_the_last_one() {
        assert!(same_bits(&[0.1f32, f32::INFINITY], &[0.1, f32::INFINITY]));
        assert!(!same_bits(&[0.1f32], &[f32::from_bits(0.1f32.to_bits() + 1)]));
        assert!(!same_bits(&[0.0], &[-0.0]));
    }
}
