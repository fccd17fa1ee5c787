//! Ranks that are late: notices, then an error.
//!
//! A rank that computes may still come, so waiting for it is no error at first. After
//! [`Options::notice`] one line names the late rank, the call, and how long a rank has waited.
//! After twice that time the notice calls the late rank a straggler. At the deadline the wait is an
//! error.

use crate::comm::{Call, Options, RankState};
use crate::units;
use std::time::Duration;

/// The last notice about a rank that is late.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Lateness {
    Late,
    Straggler,
}

/// The notice that is due about a rank that has computed for so long while others wait for it, and
/// the time until the next one.
pub(super) fn due(options: &Options, computed: Duration) -> (Lateness, Duration) {
    match (2 * options.notice()).checked_sub(computed) {
        Some(rest) if !rest.is_zero() => (Lateness::Late, rest),
        _ => (Lateness::Straggler, options.deadline),
    }
}

/// Prints a notice that `rank` has waited for rank `late`. `doing` describes what rank `late` does
/// meanwhile.
pub(super) fn say(
    due: Lateness,
    late: usize,
    rank: usize,
    call: &Call,
    waited: Duration,
    doing: &RankState,
) {
    let is = match due {
        Lateness::Late => "is late",
        Lateness::Straggler => "is a straggler",
    };
    let waited = units::seconds(waited.as_secs_f64());
    let waits = format!("rank {rank} has waited for it for {waited} in {call}");
    notice(&format!("rank {late} {is}: {waits}\n  rank {late}  {doing}"));
}

/// Prints a notice that a late rank has come to `call`.
pub(super) fn say_it_came(late: usize, call: &Call, computed: Duration) {
    notice(&format!(
        "rank {late} came to {call} after {}",
        units::seconds(computed.as_secs_f64())
    ));
}

fn notice(text: &str) {
    crate::notice::complain(&format!("notice: {text}"));
}
