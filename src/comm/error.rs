//! The errors of communication: variants with fields for code that matches them, and a text for
//! people.

use super::{Call, CallInfo, FlightFile};
use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Why a communication call failed. The text names the ranks and the call, and says what to do.
///
/// The rank that finds the reason gets the reason's own variant. All other ranks get
/// [`CommError::Stopped`] at their current or next call, with the reason as its cause:
/// [`CommError::reason`] is the same on all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CommError {
    /// The arguments make no sense, whatever the other ranks do.
    #[error("{}{why}", .call.as_ref().map_or(String::new(), |call| format!("{call}: ")))]
    Invalid {
        /// The call, if one was made.
        call: Option<Box<CallInfo>>,
        why: String,
    },
    /// Ranks of a group met in different calls. They go on together only in the same call, with the
    /// same arguments.
    #[error(
        "the ranks are in different calls: {}{}",
        both(.calls),
        .report.with(if *.alike { DIFFERENT_PLACES } else { DIFFERENT_CALLS })
    )]
    CallsDiffer {
        /// The calls of two ranks, which differ.
        calls: Box<[CallInfo; 2]>,
        /// Whether the calls differ in nothing but their label or their place in the source.
        alike: bool,
        report: Box<Report>,
    },
    /// A rank has returned from its closure, and `call` needs it.
    #[error("rank {rank} ended, and never entered {call}{}", .report.with(SAME_CALLS))]
    RankEnded {
        /// The rank that has ended, by its number in the world.
        rank: usize,
        /// The call that waits for it.
        call: Box<CallInfo>,
        report: Box<Report>,
    },
    /// A rank waited for others until [`Options::deadline`](super::Options::deadline).
    #[error(
        "{} did not come to {call} within {}{}",
        named(.missing),
        units::seconds(.waited.as_secs_f64()),
        .report.with(TOO_LATE)
    )]
    DeadlinePassed {
        /// The ranks that did not come, by their numbers in the world.
        missing: Vec<usize>,
        /// The call that waited for them.
        call: Box<CallInfo>,
        waited: Duration,
        report: Box<Report>,
    },
    /// Ranks wait for each other in a circle. The report has the call of each.
    #[error(
        "deadlock: {}ranks wait for each other{}",
        if *.all { "all " } else { "" },
        .report.with(DEADLOCK)
    )]
    Deadlock {
        /// Whether these are all ranks of the run. Over MPI no rank knows, so it is false.
        all: bool,
        report: Box<Report>,
    },
    /// A message has a different length, type or label than the receive that it met.
    #[error(
        "the message does not fit: {}{}",
        met(*.from, *.len, .sent.as_deref(), .call),
        .report.with(FITTING)
    )]
    MessageDiffers {
        /// The sender, by its number in the world.
        from: usize,
        /// Elements of the message.
        len: usize,
        /// The call that sent it; over MPI the receiver does not know it.
        sent: Option<Box<CallInfo>>,
        /// The receive.
        call: Box<CallInfo>,
        report: Box<Report>,
    },
    /// All ranks have ended, and there are messages that none has received.
    #[error(
        "the run is over, and messages were not received{}\nhelp: {UNRECEIVED}",
        .messages.iter().map(Unreceived::line).collect::<String>()
    )]
    NotReceived { messages: Vec<Unreceived> },
    /// A rank returned an error or panicked.
    #[error("rank {rank} failed: {why}")]
    RankFailed {
        rank: usize,
        panicked: bool,
        /// The rank's error with its context, in words.
        why: String,
        /// The rank's error, if it is one of communication.
        cause: Option<Box<CommError>>,
    },
    /// The run has failed for a reason that lies elsewhere. This rank stops at its current
    /// communication call, or at its next one.
    #[error("rank {rank} stopped in {call}, because the run has failed: {cause}")]
    Stopped { rank: usize, call: Box<CallInfo>, cause: Box<CommError> },
}

/// The result of communication.
pub type Result<T> = std::result::Result<T, CommError>;

impl CommError {
    /// Why the run failed: the cause of [`CommError::Stopped`], and the communication error of a
    /// rank that failed with one. Any other error is its own reason.
    pub fn reason(&self) -> &CommError {
        match self {
            CommError::Stopped { cause, .. } => cause.reason(),
            CommError::RankFailed { cause: Some(cause), .. } => cause.reason(),
            own => own,
        }
    }

    pub(super) fn invalid(call: &Call, why: impl Into<String>) -> CommError {
        CommError::Invalid { call: Some(Box::new(call.info(None))), why: why.into() }
    }

    /// The error of a rank whose closure returned `error`.
    pub(crate) fn of_rank(rank: usize, error: &anyhow::Error) -> CommError {
        CommError::RankFailed {
            rank,
            panicked: error.is::<Panicked>(),
            why: format!("{error:#}"),
            cause: error.downcast_ref::<CommError>().cloned().map(Box::new),
        }
    }
}

/// A rank's panic, in place of the error that its closure would return.
#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub(crate) struct Panicked(pub String);

/// Messages that one rank sent to another, which did not receive them. Ranks have their numbers in
/// the world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreceived {
    pub from: usize,
    pub to: usize,
    /// How many messages.
    pub count: u64,
    /// The call that sent the latest.
    pub latest: CallInfo,
}

impl Unreceived {
    fn line(&self) -> String {
        let Unreceived { from, to, count, latest } = self;
        let sent = if *count == 1 {
            "a message".to_string()
        } else {
            format!("{count} messages")
        };
        format!("\n  rank {from}  sent {sent} that rank {to} did not receive; the latest: {latest}")
    }
}

/// What was known of the ranks when an error was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Ranks by their numbers in the world, and what each was doing.
    pub ranks: Vec<(usize, RankState)>,
    /// The file with the ranks' last calls, if the run writes one.
    pub flight_file: Option<FlightFile>,
}

/// What a rank is doing, as far as the rank knows that tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankState {
    /// It has made no communication call yet.
    NoCallYet,
    /// It waits in `call` for other ranks, since `time` ago.
    Waits { call: CallInfo, time: Duration },
    /// It is in `call`, and does its part of the work.
    InCall { call: CallInfo },
    /// It has been computing for `time` since its latest call.
    Computes { after: CallInfo, time: Duration },
    /// Its closure has returned without any communication call.
    EndedWithoutCall,
    /// Its closure has returned; the latest call, if it is known.
    Ended { after: Option<CallInfo> },
    /// Over MPI: it was in `call` `time` ago, and nothing later is known of it.
    LastSeen { call: CallInfo, time: Duration },
    /// Over MPI: nothing is known of it.
    NotSeen,
}

impl fmt::Display for RankState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            RankState::NoCallYet => f.write_str("has made no communication call yet"),
            RankState::Waits { call, time } => {
                write!(f, "waits in {call:#}{}", long(" for ", *time, ""))
            }
            RankState::InCall { call } => write!(f, "is in {call:#}"),
            RankState::Computes { after, time } => {
                write!(f, "computes{}, after {after:#}", long(" for ", *time, ""))
            }
            RankState::EndedWithoutCall => f.write_str("ended without any communication call"),
            RankState::Ended { after: Some(call) } => write!(f, "ended after {call:#}"),
            RankState::Ended { after: None } => f.write_str("ended"),
            RankState::LastSeen { call, time } => {
                write!(f, "was last seen in {call:#}{}", long(", ", *time, " ago"))
            }
            RankState::NotSeen => f.write_str("has not been seen"),
        }
    }
}

/// A time in words, between two words, or nothing if it is too short to matter.
fn long(before: &str, time: Duration, after: &str) -> String {
    if time < Duration::from_millis(500) {
        return String::new();
    }
    format!("{before}{}{after}", units::seconds(time.as_secs_f64()))
}

const SAME_CALLS: &str = "every rank of a group must make the same calls in the same order; \
     did one return early, or is a call inside an `if rank == …`?";
const DIFFERENT_CALLS: &str = "every rank of a group must make the same calls in the same order, \
     with the same length, type, reduction and root";
const DIFFERENT_PLACES: &str = "calls that differ in nothing else are compared by their place in the source: has a rank \
     skipped one, or changed their order? If these are to meet, give both a label: comm.labelled(\"…\")";
const FITTING: &str = "send and receive slices of the same length and type; two streams of messages between the same \
     ranks need a tag each: comm.tagged(…)";
const DEADLOCK: &str = "look for a receive without a matching send, or collectives that ranks enter in different orders";
const TOO_LATE: &str = "is it still computing? then give it more time: `deadline` SECONDS; \
     does it hang? then look at where it was last seen";
const UNRECEIVED: &str =
    "every send needs a receive on the other rank, with the same tag, in the same group";

/// `rank 1`, or `ranks 1, 2`.
fn named(ranks: &[usize]) -> String {
    let s = if ranks.len() == 1 { "" } else { "s" };
    let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("rank{s} {}", ranks.join(", "))
}

/// Two calls, with their numbers if both are known.
fn both([one, other]: &[CallInfo; 2]) -> String {
    if one.number.is_some() && other.number.is_some() {
        format!("{one:#} and {other:#}")
    } else {
        format!("{one} and {other}")
    }
}

/// How a message and the receive that it met differ.
fn met(from: usize, len: usize, sent: Option<&CallInfo>, call: &CallInfo) -> String {
    match sent {
        Some(sent) => format!("{sent} on rank {from} met {call}"),
        None => format!("rank {from} sent {len} elements that {call} did not expect"),
    }
}

impl Report {
    /// A line for every rank, and the help.
    fn with(&self, help: &str) -> String {
        let line = |(rank, state): &(usize, RankState)| format!("\n  rank {rank}  {state}");
        let lines: String = self.ranks.iter().map(line).collect();
        let file = self.flight_file.as_ref().map(FlightFile::to_string);
        format!("{lines}\nhelp: {help}{}", file.unwrap_or_default())
    }
}
