//! Whether ranks that share sequences train the model of one rank, and send what the formulas say.

use super::{Measured, OneRank, Work};
use kit::Checks;
use kit::parity::{self, rounds, worst};
use kit::show::{bytes_decimal, in_common, significant};
use shardlab::difference::largest_relative_difference;
use shardlab::parallel::Strategy;
use shardlab::parallel::context::Slicing;
use shardlab::tensor::Precision;
use shardlab::train::Config;

/// The most by which a gradient may differ from one rank's, norm by norm. An attention adds up the
/// same products in another order; what is off by some roundings of f32 (6e-8 each) goes through
/// every layer of the model, and most roundings cancel.
const ROUNDING: f64 = 1e-6;

/// What the ranks found.
pub struct Found {
    /// Of each exchange.
    pub measured: Vec<Measured>,
    /// The bytes that its ranks should have sent, forward and backward.
    pub expected: Vec<[f64; 2]>,
    /// One document in both orders, and then the batch's.
    pub work: Vec<Work>,
    /// The order in which all should compute equally much.
    pub asked: Slicing,
}

/// Runs all checks.
pub fn check(checks: &mut Checks, config: &Config, one: &OneRank, found: &Found) {
    // The first loss is of no gradients yet.
    let loss_bound = match config.precision {
        Precision::F32 => ROUNDING,
        Precision::Bf16 => parity::loss_bound(Precision::Bf16),
    };
    let gradient_bound = parity::gradient_bound(config, ROUNDING);
    let all = &found.measured;
    let each = |of: &dyn Fn(&Measured) -> String| in_common(all.iter().map(of));
    let most = |of: &dyn Fn(&Measured) -> f64| worst(all.iter().map(of));
    let apart = |x: f64| if x == 0.0 { "0".to_string() } else { significant(x, 2) };

    let loss = |measured: &Measured| (measured.loss - one.losses[0]).abs() / one.losses[0];
    checks.check(
        most(&loss) < loss_bound,
        &format!("the loss is one rank's, within {}", apart(loss_bound)),
        &format!("off by {}", apart(most(&loss))),
        "the forward pass differs from one rank's",
    );
    let norm = farthest_from_one(all.iter().map(|measured| measured.norm));
    let farthest = all.iter().max_by(|a, b| a.gradients.total_cmp(&b.gradients));
    let (by, name) = farthest.map_or((0.0, ""), |one| (one.gradients, &one.farthest));
    checks.check(
        most(&|measured| measured.gradients) < gradient_bound,
        &format!("every gradient is one rank's, within {}", apart(gradient_bound)),
        &format!("off by {}", apart(most(&|measured| measured.gradients))),
        &format!(
            "gradients differ from one rank's, that of {name} by {} of its norm; the norm of all is {} of one rank's",
            significant(by, 2),
            significant(norm, 4)
        ),
    );
    let leaks = all.iter().map(|measured| measured.probed.others[1]).max().unwrap_or(0);
    let heard = all.iter().all(|measured| {
        let [own, changed] = measured.probed.own;
        changed > 0 && changed == own // the token's own position, at least
    });
    let probed = all[0].probed;
    checks.check(
        leaks == 0 && heard,
        "one token changes its document alone",
        &format!(
            "{} of {}, {leaks} of {} others",
            all.iter().map(|measured| measured.probed.own[1]).min().unwrap_or(0),
            probed.own[0],
            probed.others[0]
        ),
        "a token changes outputs of another document, or not those of its own",
    );
    let sent = all
        .iter()
        .zip(&found.expected)
        .all(|(measured, expected)| measured.sent == *expected);
    checks.check(
        sent,
        "bytes sent are the formulas'",
        &each(&|measured| bytes_decimal(measured.sent[0] + measured.sent[1])),
        "a rank sent other bytes than the formula says",
    );
    if let Some(asked) = found.work.iter().find(|work| work.slicing == found.asked) {
        let slowest = significant(asked.slowest(), 3);
        let order = asked.slicing.name();
        checks.check(
            asked.slowest() == 1.0,
            &format!("in {order} order all compute equally much"),
            &format!("{slowest} of the mean"),
            &format!("in {order} order all wait for a rank that computes {slowest} times the mean"),
        );
    }
}

/// The factor that changes most: 1/4 as much as 4. Not a number is farther than all.
fn farthest_from_one(factors: impl Iterator<Item = f64>) -> f64 {
    let far = |x: f64| if x.is_nan() { f64::INFINITY } else { x.ln().abs() };
    factors.fold(1.0, |most: f64, x| if x.is_nan() || far(x) > far(most) { x } else { most })
}

/// Checks the first losses of a training by `strategy`, as many as [`steady_steps`] counts.
///
/// [`steady_steps`]: super::steady_steps
pub fn check_training(
    checks: &mut Checks,
    config: &Config,
    one: &OneRank,
    strategy: &Strategy,
    losses: &[f64],
    compared: usize,
) {
    let bound = parity::loss_bound(rounds(config));
    let left_out = one.losses.len() - compared;
    let found = losses.get(..losses.len().saturating_sub(left_out)).unwrap_or_default();
    let off = largest_relative_difference(found, &one.losses[..compared]);
    checks.check(
        off < bound,
        &format!("{strategy}: losses within {}", significant(bound, 2)),
        &format!("off by {}", significant(off, 2)),
        "the strategy trained a different model",
    );
    checks.compared(compared, one.losses.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::{Load, Probed};
    use kit::show::Screen;
    use shardlab::data::Corpus;
    use shardlab::parallel::context::Exchange;
    use std::collections::HashMap;

    /// What a ring of two ranks finds if all is right.
    fn right() -> (OneRank, Found) {
        let strategy = Strategy { context: 2, exchange: Exchange::Ring, ..Strategy::SINGLE };
        let measured = Measured {
            strategy,
            loss: 4.0,
            gradients: 0.0,
            farthest: "a".to_string(),
            norm: 1.0,
            sent: [8.0, 16.0],
            activations: 100.0,
            attending: 50.0,
            tokens: vec![4, 4],
            probed: Probed { token: 1, own: [3, 3], others: [4, 0] },
        };
        let one = OneRank {
            losses: vec![4.0],
            gradients: HashMap::new(),
            grad_norm: 1.0,
            activations: 200,
            attending: 100.0,
        };
        let work = Work {
            slicing: Slicing::ZigZag,
            load: Load::one_document(2),
            flops: vec![1.0, 1.0],
            seconds: vec![1.0, 1.0],
        };
        let found = Found {
            measured: vec![measured],
            expected: vec![[8.0, 16.0]],
            work: vec![work],
            asked: Slicing::ZigZag,
        };
        (one, found)
    }

    fn errors(change: impl FnOnce(&mut Found)) -> Vec<String> {
        let (one, mut found) = right();
        change(&mut found);
        let screen = Screen::plain();
        let mut checks = Checks::new(&screen);
        let config = Config::small(1, &Corpus::embedded().unwrap());
        check(&mut checks, &config, &one, &found);
        checks.failed()
    }

    /// Each of these would be a ring that trains another model, or computes or sends otherwise.
    #[test]
    fn each_check_sees_what_it_is_for() {
        assert_eq!(errors(|_| ()), Vec::<String>::new());
        let of = |change: fn(&mut Measured)| errors(|found| change(&mut found.measured[0]));
        for (errors, says) in [
            (of(|ring| ring.loss = f64::NAN), "the forward pass differs"),
            (of(|ring| ring.loss = 4.1), "the forward pass differs"),
            (of(|ring| ring.gradients = f64::NAN), "gradients differ"),
            (of(|ring| ring.probed.own[1] = 0), "a token changes"),
            (of(|ring| ring.probed.own = [0, 0]), "a token changes"),
            (of(|ring| ring.probed.others[1] = 1), "a token changes"),
            (of(|ring| ring.sent[0] = 7.0), "a rank sent other bytes"),
            (of(|ring| ring.sent[1] = 17.0), "a rank sent other bytes"),
            (of(|ring| ring.sent[1] = f64::NAN), "a rank sent other bytes"),
            (errors(|found| found.work[0].flops[1] = 3.0), "computes 1.50 times the mean"),
            (errors(|found| found.work[0].flops[1] = f64::NAN), "computes n/a times the mean"),
        ] {
            assert!(errors.len() == 1 && errors[0].contains(says), "{says}: {errors:?}");
        }
    }

    #[test]
    fn a_norm_that_is_too_small_is_told_as_one_that_is_too_large() {
        for (norms, far) in [
            (&[1.0, 0.25][..], 0.25),
            (&[0.5, 4.0], 4.0),
            (&[1.5, 0.0], 0.0),
            (&[1.01], 1.01),
            (&[], 1.0),
        ] {
            assert_eq!(farthest_from_one(norms.iter().copied()), far, "{norms:?}");
        }
        assert!(farthest_from_one([4.0, f64::NAN, 0.1].into_iter()).is_nan());
        let errors = errors(|found| {
            found.measured[0].gradients = 0.75;
            found.measured[0].norm = 0.25;
        });
        assert!(errors[0].contains("the norm of all is 0.2500 of one rank's"), "{errors:?}");
    }

    /// One exchange that is not a number, sends nothing and hears nothing is seen among right ones,
    /// in every check and wherever it is.
    #[test]
    fn one_hostile_exchange_among_right_ones_is_enough() {
        let bad = || Measured {
            loss: f64::NAN,
            gradients: f64::NAN,
            norm: f64::NAN,
            sent: [0.0, 0.0],
            probed: Probed { token: 1, own: [3, 0], others: [4, 0] },
            ..right().1.measured.remove(0)
        };
        for place in 0..3 {
            let errors = errors(|found| {
                found.measured = [(); 3].map(|()| right().1.measured.remove(0)).into();
                found.expected = vec![[8.0, 16.0]; 3];
                found.measured[place] = bad();
            });
            assert_eq!(errors.len(), 4, "{place}: {errors:?}");
        }
        // Losses of a training by a strategy.
        let (one, _) = right();
        let config = Config::small(1, &Corpus::embedded().unwrap());
        for losses in [&[f64::NAN][..], &[], &[4.0, 4.0]] {
            let screen = Screen::plain();
            let mut checks = Checks::new(&screen);
            check_training(&mut checks, &config, &one, &Strategy::SINGLE, losses, 1);
            assert_eq!(checks.failed().len(), 1, "{losses:?}");
        }
    }
}
