//! Calls of one number that do not fit together: their operations, sizes, types or roots.

use super::dump::Call;
use super::job::{At, Group, Job};
use std::collections::BTreeMap;

/// In what calls differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Operations,
    Sizes,
    Types,
    Roots,
}

/// A difference, and the ranks that differ from most others: all, if no most agree.
#[derive(Clone, Debug)]
pub struct Difference {
    pub what: What,
    pub ranks: Vec<usize>,
    /// Whether most agree.
    pub has_majority: bool,
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
    let begins = |start| op.trim_start_matches('_').starts_with(start);
    match op.as_str() {
        "barrier" | "allreduce_barrier" | "split" | "new_window" | "coalesced" => Rule::Any,
        _ if op.contains('+') => Rule::Any,
        "gather" => Rule::Root(sent, received),
        "scatter" => Rule::Root(received, sent),
        "_broadcast_oop" => Rule::Same(received),
        // Who sends how much to whom is not recorded.
        _ if begins("allto") => Rule::Any,
        _ if begins("allgather") => Rule::Parts(sent, received),
        _ if begins("reduce_scatter") => Rule::Parts(received, sent),
        _ => Rule::Same(sent),
    }
}

/// The first difference between the ranks' calls of one number.
pub fn difference(job: &Job, group: &Group, number: i64) -> Option<Difference> {
    let of_number = &group.calls[&number];
    let operations = of_number.keys().map(|rank| (*rank, group.op(job, *rank, number)));
    if let Some(operations) = odd(What::Operations, operations) {
        return Some(operations);
    }
    let rule = rule(&group.op(job, *of_number.keys().next()?, number));
    let types = of_number
        .iter()
        .map(|(rank, all)| (*rank, &job.call(*rank, all[0]).input_dtypes));
    let types = types.filter(|(_, types)| !types.is_empty() && !matches!(rule, Rule::Any));
    let types = odd(What::Types, types);
    // A recorder that has wrapped may have lost the first of several calls of one number.
    let first = of_number.values().map(Vec::len).next();
    if of_number.values().any(|all| Some(all.len()) != first) {
        return types;
    }
    let all = |count: Count| -> BTreeMap<usize, Vec<u64>> {
        let of = |rank, all: &[At]| all.iter().map(|at| count(job.call(rank, *at))).collect();
        of_number.iter().map(|(rank, all)| (*rank, of(*rank, all))).collect()
    };
    let sum = |count| all(count).values().flatten().copied().fold(0, u64::saturating_add);
    let are_all_here = of_number.len() == group.ranks.len();
    let sizes = match rule {
        Rule::Any => None,
        Rule::Same(count) => odd(What::Sizes, all(count)),
        Rule::Parts(part, whole) => odd(What::Sizes, all(whole)).or_else(|| {
            let fits = sum(part).saturating_mul(of_number.len() as u64) == sum(whole);
            odd(What::Sizes, all(part)).filter(|_| are_all_here && !fits)
        }),
        Rule::Root(part, whole) => odd(What::Sizes, all(part)).or_else(|| {
            let has = |(_, all): &(usize, Vec<u64>)| all.iter().any(|one| *one > 0);
            let ranks: Vec<usize> = all(whole).into_iter().filter(has).map(|one| one.0).collect();
            let is_wrong = ranks.len() > 1 || (are_all_here && ranks.is_empty() && sum(part) > 0);
            is_wrong.then_some(Difference { what: What::Roots, ranks, has_majority: false })
        }),
    };
    sizes.or(types)
}

/// The ranks whose value is not that of most ranks.
fn odd<T: Ord>(what: What, values: impl IntoIterator<Item = (usize, T)>) -> Option<Difference> {
    let mut classes: BTreeMap<T, Vec<usize>> = BTreeMap::new();
    for (rank, value) in values {
        classes.entry(value).or_default().push(rank);
    }
    let most = classes.values().map(Vec::len).max()?;
    let has_majority = classes.values().filter(|ranks| ranks.len() == most).count() == 1;
    let odd = classes.values().filter(|ranks| !has_majority || ranks.len() < most);
    let mut ranks: Vec<usize> = odd.flatten().copied().collect();
    ranks.sort();
    (classes.len() > 1).then_some(Difference { what, ranks, has_majority })
}
