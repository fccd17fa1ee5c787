//! Whether ranks that share sequences train the model of one rank, and send what the formulas say.

use super::{Measured, OneRank, Work};
use kit::Checks;
use kit::show::{bytes_decimal, significant};
use shardlab::difference::largest_relative_difference;
use shardlab::parallel::Strategy;
use shardlab::parallel::context::Slicing;
use shardlab::tensor::Precision;

/// The most by which a gradient may differ from one rank's, norm by norm. An attention adds up the
/// same products in another order; what is off by some roundings of f32 (6e-8 each) goes through
/// every layer of the model, and most roundings cancel.
const ROUNDING: f64 = 1e-6;

/// The same where factors are rounded to bf16: four of its units of 2^-8.
const ROUNDING_OF_BF16: f64 = 4.0 / 256.0;

/// The most by which a step's loss may differ: each step begins where the last one ended.
const DRIFT: f64 = 1e-5;

/// What the ranks found.
pub struct Found {
    /// Of each exchange.
    pub measured: Vec<Measured>,
    /// The bytes that its ranks should have sent, forward and backward.
    pub expected: Vec<[f64; 2]>,
    /// In contiguous order, and in the run's.
    pub work: [Work; 2],
}

/// Runs all checks.
pub fn check(checks: &mut Checks, precision: Precision, one: &OneRank, found: &Found) {
    let (loss_bound, gradient_bound) = match precision {
        Precision::F32 => (ROUNDING, ROUNDING),
        Precision::Bf16 => (precision.loss_bound(), ROUNDING_OF_BF16),
    };
    let all = &found.measured;
    let each = |of: &dyn Fn(&Measured) -> String| {
        let results: Vec<String> = all.iter().map(of).collect();
        let same = results.iter().all(|result| *result == results[0]);
        if same { results[0].clone() } else { results.join(", ") }
    };
    let most = |of: &dyn Fn(&Measured) -> f64| {
        all.iter()
            .map(of)
            .fold(0.0, |most: f64, x| if x > most || x.is_nan() { x } else { most })
    };
    let apart = |x: f64| if x == 0.0 { "0".to_string() } else { significant(x, 2) };

    let loss = |measured: &Measured| (measured.loss - one.losses[0]).abs() / one.losses[0];
    checks.check(
        most(&loss) < loss_bound,
        &format!("the loss is one rank's, within {}", apart(loss_bound)),
        &format!("off by {}", apart(most(&loss))),
        "the forward pass differs from one rank's",
    );
    let norm = all.iter().map(|measured| measured.norm).fold(1.0, f64::max);
    checks.check(
        most(&|measured| measured.gradients) < gradient_bound,
        &format!("every gradient is one rank's, within {}", apart(gradient_bound)),
        &format!("off by {}", apart(most(&|measured| measured.gradients))),
        &format!("gradients differ from one rank's: their norm is {} of it", significant(norm, 4)),
    );
    let leaks = all.iter().map(|measured| measured.probed.others[1]).max().unwrap_or(0);
    let heard = all.iter().all(|measured| measured.probed.own[0] == measured.probed.own[1]);
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
    let [_, chosen] = &found.work;
    if chosen.slicing == Slicing::ZigZag {
        checks.check(
            chosen.slowest() == 1.0,
            "in zig-zag order all compute equally much",
            &format!("{} of the mean", significant(chosen.slowest(), 3)),
            "a rank computes more than the mean in zig-zag order",
        );
    }
}

/// Checks the losses of a training by `strategy`.
pub fn check_training(
    checks: &mut Checks,
    precision: Precision,
    one: &OneRank,
    strategy: &Strategy,
    losses: &[f64],
) {
    let bound = match precision {
        Precision::F32 => DRIFT,
        Precision::Bf16 => precision.loss_bound(),
    };
    let off = largest_relative_difference(losses, &one.losses);
    checks.check(
        off < bound,
        &format!("{strategy}: losses within {}", significant(bound, 2)),
        &format!("off by {}", significant(off, 2)),
        "the strategy trained a different model",
    );
}
