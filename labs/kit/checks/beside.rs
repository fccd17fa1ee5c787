//! A lab's first check: the lesson's own version beside the library's.

use super::parity::loss_bound;
use crate::Checks;
use crate::show::significant;
use shardlab::comm::{Comm, Reduce, Result};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::tensor::Precision;

/// How far the lesson's result is from the library's, on the rank where it is farthest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beside {
    /// The largest difference of two elements; infinite for NaN and for different lengths.
    pub difference: f64,
    /// The most that the difference may be. 0: both add in the same order, so they have the same
    /// bits.
    pub bound: f64,
}

impl Beside {
    /// Compares `lesson` with `library` on every rank of `comm`.
    ///
    /// # Errors
    /// If the ranks cannot exchange their differences.
    pub fn of<T: Copy + Into<f64>>(
        comm: &Comm,
        lesson: &[T],
        library: &[T],
        bound: f64,
    ) -> Result<Beside> {
        let mut largest = largest_difference(lesson, library);
        // 0 and -0 differ in their bits alone.
        if largest == 0.0 && !same_bits(lesson, library) {
            largest = f64::MIN_POSITIVE;
        }
        Ok(Beside { difference: comm.reduced(largest, Reduce::Max)?, bound })
    }

    /// The most by which two orders of adding one number of each rank can differ, 0 where `comm`
    /// adds in rank order. The absolute values of these numbers add up to `absolute`.
    ///
    /// Each of n-1 additions rounds by at most 2^-24 of the sum so far, in both orders (Higham,
    /// Accuracy and Stability of Numerical Algorithms, section 4.2).
    pub fn of_any_order(comm: &Comm, absolute: f64) -> f64 {
        if comm.adds_in_rank_order() {
            return 0.0;
        }
        let unit = f64::from(f32::EPSILON) / 2.0;
        2.0 * (comm.size() as f64 - 1.0) * unit * absolute
    }

    /// Compares the losses of two trainings: their bits if both add gradients `in_one_order`, and
    /// otherwise within what another order may change. In bf16 too: a lesson keeps all parameters
    /// in f32, and rounds what it multiplies alone.
    ///
    /// # Errors
    /// Those of [`Beside::of`].
    pub fn of_losses(
        comm: &Comm,
        lesson: &[f64],
        library: &[f64],
        in_one_order: bool,
        precision: Precision,
    ) -> Result<Beside> {
        let first = library.first().copied().unwrap_or_default();
        let bound = if in_one_order && precision == Precision::F32 {
            0.0
        } else {
            loss_bound(precision) * first
        };
        Beside::of(comm, lesson, library, bound)
    }

    /// Of two comparisons, the one whose difference is nearer to its bound, or above it.
    pub fn or_nearer(self, other: Beside) -> Beside {
        // A bound of 0 that nothing differs from is 0 / 0.
        let used = |beside: Beside| match beside.difference {
            0.0 => 0.0,
            difference => difference / beside.bound,
        };
        if used(other) > used(self) { other } else { self }
    }

    pub fn holds(self) -> bool {
        self.difference <= self.bound
    }
}

impl Checks<'_> {
    /// Checks that `what` the lesson computes is what the library computes.
    pub fn beside(&mut self, what: &str, beside: Beside) {
        let difference = significant(beside.difference, 2);
        let bound = significant(beside.bound, 2);
        let result = match (beside.holds(), beside.bound == 0.0) {
            (true, true) => "bitwise".to_string(),
            (true, false) => format!("off by {difference} <= {bound}"),
            (false, true) => format!("expected the same bits, off by {difference}"),
            (false, false) => format!("expected at most {bound}, off by {difference}"),
        };
        let claim = format!("the lesson's {what} = the library's");
        let otherwise = format!("the lesson's {what} is not the library's");
        self.check(beside.holds(), &claim, &result, &otherwise);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lesson: &[f32], library: &[f32], bound: f64) -> Beside {
        Beside::of(&Comm::alone(), lesson, library, bound).unwrap()
    }

    #[test]
    fn nan_a_missing_element_and_a_lost_sign_are_differences() {
        assert!(of(&[1.0, 2.0], &[1.0, 2.0], 0.0).holds());
        assert!(!of(&[1.0, f32::NAN], &[1.0, f32::NAN], 1e9).holds());
        assert!(!of(&[1.0], &[1.0, 2.0], 1e9).holds());
        assert!(!of(&[0.0], &[-0.0], 0.0).holds());
        assert!(!of(&[1.0], &[1.0 + f32::EPSILON], 0.0).holds());
        assert!(of(&[1.0], &[1.0 + f32::EPSILON], 2e-7).holds());
    }

    #[test]
    fn losses_have_one_ranks_bits_or_are_near() {
        let of = |library: f64, in_one_order| {
            Beside::of_losses(&Comm::alone(), &[4.0], &[library], in_one_order, Precision::F32)
                .unwrap()
        };
        assert!(of(4.0, true).holds() && !of(4.0 + 1e-12, true).holds());
        assert!(of(4.0 + 1e-5, false).holds() && !of(4.0 + 1e-3, false).holds());
    }

    #[test]
    fn the_farthest_rank_counts() {
        let besides = shardlab::launch::run(3, |comm| {
            let mine = [if comm.rank() == 1 { 1.5 } else { 1.0 }];
            Ok(Beside::of(&comm, &mine, &[1.0], 0.0)?)
        });
        assert!(besides.unwrap().iter().all(|beside| beside.difference == 0.5));
    }

    #[test]
    fn of_two_the_one_that_does_not_hold_is_kept() {
        let beside = |difference, bound| Beside { difference, bound };
        for bad in [beside(1.0, 0.5), beside(1e-9, 0.0), beside(f64::INFINITY, 0.5)] {
            for good in [beside(0.0, 0.0), beside(0.0, 0.5), beside(0.4, 0.5)] {
                assert_eq!([bad.or_nearer(good), good.or_nearer(bad)], [bad; 2], "{good:?}");
            }
        }
        let [near, far] = [beside(0.4, 0.5), beside(1.0, 9.0)];
        assert_eq!([near.or_nearer(far), far.or_nearer(near)], [near; 2]);
    }
}
