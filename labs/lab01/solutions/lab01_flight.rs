//! lab01-flight · Which rank diverged first?

use std::collections::{BTreeMap, BTreeSet};

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
    let same =
        |a: &Call, b: &Call| (&a.kind, a.len, &a.op, &a.at) == (&b.kind, b.len, &b.op, &b.at);
    let numbers: BTreeSet<usize> = calls.iter().map(|call| call.number).collect();
    let last: BTreeMap<usize, usize> = calls.iter().map(|call| (call.rank, call.number)).collect();
    for number in numbers {
        let made: Vec<&Call> = calls.iter().filter(|call| call.number == number).collect();
        let alike = |call: &Call| made.iter().filter(|other| same(call, other)).count();
        let most = made.iter().max_by_key(|call| alike(call))?;
        let odd = made.iter().find(|call| !same(call, most)).map(|call| call.rank);
        // A rank whose calls end before this number has left. If they begin after it, the file has
        // only forgotten it.
        let left = last.iter().find(|(_, last)| **last < number).map(|(rank, _)| *rank);
        if let Some(rank) = odd.or(left) {
            return Some(Suspect { rank, expected: Call::clone(most) });
        }
    }
    None
}
