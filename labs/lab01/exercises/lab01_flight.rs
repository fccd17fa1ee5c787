//! lab01-flight · Which rank diverged first?
//!
//! A job has stopped. Its flight recorder has written the last 64 calls of every rank into a file,
//! one call per line. One rank did not do what the other ranks did. Find this rank, and the call
//! that it should have made.
//!
//! - Each rank numbers its own calls from 1. Calls with the same number belong together.
//! - Two calls are the same collective if their kind, length, reduction and source line are the
//!   same.
//! - The majority is right, whichever ranks it has.
//! - A rank that has returned makes no more calls.
//!
//! ```text
//! {"at":"a.rs:84","call":"all_reduce","len":4,"number":7,"op":"sum","rank":0}
//! {"at":"a.rs:84","call":"all_reduce","len":4,"number":7,"op":"sum","rank":1}
//! {"at":"a.rs:84","call":"all_reduce","len":4,"number":7,"op":"sum","rank":2}
//! {"at":"a.rs:85","call":"all_reduce","len":4,"number":8,"op":"sum","rank":0}
//! {"at":"a.rs:90","call":"barrier","len":0,"number":8,"op":null,"rank":1}
//! {"at":"a.rs:85","call":"all_reduce","len":4,"number":8,"op":"sum","rank":2}
//!
//! The suspect is rank 1. Expected was call 8 of rank 0, or that of rank 2.
//! ```
//!
//! `cargo run --bin lab01 -- --break missing-rank` writes such a file: look at
//! runs/lab01/flight.jsonl before you begin. In so short a job some ranks may still be in call 1
//! when it stops. In the check's files all ranks have come to the wrong call.

/// One line of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub rank: usize,
    /// This rank's call number, from 1.
    pub number: usize,
    /// The kind: `all_reduce`, `barrier`.
    pub kind: String,
    /// Elements.
    pub len: usize,
    /// The reduction: `sum`, `max`, or `null`.
    pub op: String,
    /// The source line.
    pub at: String,
}

impl Call {
    fn read(line: &str) -> Call {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("\"{name}\":")).unwrap_or_default();
            rest.split([',', '}']).next().unwrap_or_default().trim_matches('"')
        };
        let [rank, number, len] =
            ["rank", "number", "len"].map(|name| field(name).parse().unwrap_or(0));
        let [kind, op, at] = ["call", "op", "at"].map(|name| field(name).to_string());
        Call { rank, number, kind, len, op, at }
    }
}

/// The rank that did not do what the other ranks did, and the call that any of them made instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    pub rank: usize,
    pub expected: Call,
}

/// The first rank to diverge. None if all ranks made the same calls.
pub fn suspect(file: &str) -> Option<Suspect> {
    let calls: Vec<Call> = file.lines().map(Call::read).collect();
    todo!("{} calls: which is the first that not all ranks made?", calls.len())
}
