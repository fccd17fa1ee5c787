//! Calls of one number that do not fit together: their operations, sizes, types or roots.

use super::dump::Call;
use super::job::Calls;
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with the calls of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Some ranks are not in it, or nobody is missing.
    Missing,
    Operations,
    Sizes,
    Types,
    Roots,
}

/// Elements of a call's inputs or outputs.
type Count = fn(&Call) -> u64;

/// What must fit together in a collective.
enum Rule {
    /// Nothing that a dump tells.
    Any,
    Same(Count),
    /// Each rank has one part, and all ranks the whole.
    Parts(Count, Count),
    /// Each rank has one part, and one rank the whole.
    Root(Count, Count),
}

pub fn sent(call: &Call) -> u64 {
    elements(&call.input_sizes)
}

pub fn received(call: &Call) -> u64 {
    elements(&call.output_sizes)
}

fn elements(shapes: &[Vec<u64>]) -> u64 {
    let size = |shape: &Vec<u64>| shape.iter().fold(1, |all: u64, size| all.saturating_mul(*size));
    shapes.iter().map(size).fold(0, u64::saturating_add)
}

fn rule(op: &str) -> Rule {
    let op = op.to_ascii_lowercase().replace("all_", "all");
    match op.trim_start_matches('_') {
        "barrier" | "allreduce_barrier" | "split" | "new_window" | "coalesced" => Rule::Any,
        "gather" => Rule::Root(sent, received),
        "scatter" => Rule::Root(received, sent),
        "broadcast_oop" => Rule::Same(received),
        // Who sends how much to whom is not recorded.
        op if op.starts_with("allto") => Rule::Any,
        op if op.starts_with("allgather") => Rule::Parts(sent, received),
        op if op.starts_with("reduce_scatter") => Rule::Parts(received, sent),
        _ => Rule::Same(sent),
    }
}

/// Whether a rank can end an operation before all others are in it.
pub fn may_end_early(op: &str) -> bool {
    let op = op.trim_start_matches('_').trim_end_matches("_oop");
    ["broadcast", "reduce", "scatter", "gather"].contains(&op)
}

/// The first difference between the ranks' calls of one number in a group of so many members, and
/// the ranks that differ from most others: all, if no most agree.
pub fn difference(calls: &Calls, members: usize) -> Option<(What, BTreeSet<usize>)> {
    if let Some(ranks) = odd(calls, |call| call.op.clone()) {
        return Some((What::Operations, ranks));
    }
    let are_all_here = calls.len() == members;
    let sum = |count: Count| calls.values().map(|call| count(call)).fold(0, u64::saturating_add);
    let sizes = match rule(&calls.values().next()?.op) {
        Rule::Any => return None,
        Rule::Same(count) => odd(calls, count),
        Rule::Parts(part, whole) => odd(calls, whole).or_else(|| {
            let fits = sum(part).saturating_mul(calls.len() as u64) == sum(whole);
            odd(calls, part).filter(|_| are_all_here && !fits)
        }),
        Rule::Root(part, whole) => {
            let roots = calls.iter().filter(|(_, call)| whole(call) > 0);
            let roots: BTreeSet<usize> = roots.map(|(rank, _)| *rank).collect();
            let lacks_root = are_all_here && roots.is_empty() && sum(part) > 0;
            let sizes = odd(calls, part);
            if sizes.is_none() && (roots.len() > 1 || lacks_root) {
                return Some((What::Roots, roots));
            }
            sizes
        }
    };
    // Who gives nothing has no type.
    let mut typed = calls.clone();
    typed.retain(|_, call| !call.input_dtypes.is_empty());
    let types = || Some((What::Types, odd(&typed, |call| call.input_dtypes.clone())?));
    sizes.map(|ranks| (What::Sizes, ranks)).or_else(types)
}

/// The ranks whose value is not that of most ranks.
fn odd<T: Ord>(calls: &Calls, value: impl Fn(&Call) -> T) -> Option<BTreeSet<usize>> {
    let mut classes: BTreeMap<T, Vec<usize>> = BTreeMap::new();
    for (rank, call) in calls {
        classes.entry(value(call)).or_default().push(*rank);
    }
    let most = classes.values().map(Vec::len).max()?;
    let has_majority = classes.values().filter(|ranks| ranks.len() == most).count() == 1;
    let odd = classes.values().filter(|ranks| !has_majority || ranks.len() < most);
    (classes.len() > 1).then(|| odd.flatten().copied().collect())
}
