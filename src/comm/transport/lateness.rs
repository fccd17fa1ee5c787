//! Ranks that are late: who is told when.
//!
//! A rank that computes may still come, so waiting for it is no error yet. After [`Options::notice`] one line says who is
//! waited for, where and since when; a rank that computes for twice that time is called a straggler, and not ended;
//! and at the deadline its wait is an error.

use crate::comm::{Call, Options};
use crate::show;
use std::time::{Duration, Instant};

/// How long a rank may be waited for.
pub(super) struct Late {
    pub deadline: Duration,
    pub notice: Duration,
}

/// What has been said about a rank that is late.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Told {
    #[default]
    Nothing,
    Late,
    Straggler,
}

pub(super) const TOO_LATE: &str = "is it still computing? then give it more time: --deadline SECONDS; \
     does it hang? then look at where it was last seen";

impl Late {
    pub fn new(options: &Options) -> Late {
        Late { deadline: options.deadline, notice: options.notice() }
    }

    /// What must have been said by now of a rank that has been computing for so long, while another one waits for it; and how
    /// long that remains so.
    pub fn due(&self, computed: Duration) -> (Told, Duration) {
        match (2 * self.notice).checked_sub(computed) {
            Some(rest) if !rest.is_zero() => (Told::Late, rest),
            _ => (Told::Straggler, self.deadline),
        }
    }
}

/// Says of rank `late` that `rank` has waited for it; `doing` is what it does meanwhile, in words.
pub(super) fn say(told: Told, late: usize, rank: usize, call: &Call, waited: Duration, doing: &str) {
    let is = match told {
        Told::Nothing => return,
        Told::Late => "is late",
        Told::Straggler => "is a straggler",
    };
    let waited = show::seconds(waited.as_secs_f64());
    let waits = format!("rank {rank} has waited for it for {waited} in {call}");
    notice(&format!("rank {late} {is}: {waits}\n  rank {late}  {doing}"));
}

/// Says that a rank that was late has come to `call`.
pub(super) fn say_it_came(late: usize, call: &Call, computed: Duration) {
    notice(&format!("rank {late} came to {call} after {}", show::seconds(computed.as_secs_f64())));
}

fn notice(text: &str) {
    show::complain(&format!("notice: {text}"));
}

/// Why the run ends at the deadline.
pub(super) fn too_late(missing: &[usize], call: &Call, waited: Duration) -> String {
    let ranks: Vec<String> = missing.iter().map(usize::to_string).collect();
    let ranks = if let [one] = &ranks[..] { format!("rank {one}") } else { format!("ranks {}", ranks.join(", ")) };
    format!("{ranks} did not come to {call} within {}", show::seconds(waited.as_secs_f64()))
}

/// ` for 10.0 s`, where it is long enough to be of interest.
pub(super) fn lasting(since: Instant) -> String {
    long(since).map_or(String::new(), |time| format!(" for {time}"))
}

/// `, 10.0 s ago`, likewise.
#[cfg(feature = "mpi")]
pub(super) fn ago(at: Instant) -> String {
    long(at).map_or(String::new(), |time| format!(", {time} ago"))
}

fn long(since: Instant) -> Option<String> {
    let time = since.elapsed();
    (time >= Duration::from_millis(500)).then(|| show::seconds(time.as_secs_f64()))
}
