//! Where a job stands: the calls that ranks wait in, who is missing in each, and which of them is
//! the reason of the others.

use super::differ::{What, difference, may_end_early, received, sent};
use super::dump::{Dump, State};
use super::job::{Calls, Group, Job};
use std::collections::{BTreeMap, BTreeSet};

/// A call that some ranks are in.
#[derive(Clone)]
pub struct Stuck<'a> {
    pub group: &'a Group<'a>,
    pub number: i64,
    pub op: &'a str,
    pub what: What,
    /// The ranks that the verdict names: none, if nobody is missing.
    pub ranks: BTreeSet<usize>,
    /// All calls of this number.
    pub calls: Calls<'a>,
    /// Whether all ranks have gone on since, whatever differs.
    is_passed: bool,
}

impl<'a> Stuck<'a> {
    /// The ranks that are in it, and their calls. A rank that is missing may be in another call.
    pub fn inside(&self) -> Calls<'a> {
        let mut inside = self.calls.clone();
        inside.retain(|rank, _| self.what != What::Missing || !self.ranks.contains(rank));
        inside
    }

    /// Whether it has certainly not ended on all ranks.
    pub fn is_open(&self) -> bool {
        self.group.knows_ends && !have_ended(&self.calls)
    }

    /// Whether a rank is certainly missing. One without a file may be missing in any call, where
    /// nothing says which calls have ended.
    fn lacks(&self, job: &Job) -> bool {
        let is_known = |rank| self.group.knows_ends || job.dumps.contains_key(rank);
        self.what == What::Missing && !self.is_passed && self.ranks.iter().any(is_known)
    }
}

/// The calls of the verdict, one or two of a circle, and other calls that lack a rank.
pub fn find<'a>(job: &'a Job<'a>) -> [Vec<Stuck<'a>>; 2] {
    let of = |group: &'a Group| of_group(job, group).into_iter().chain(of_messages(job, group));
    let mut stuck: Vec<Stuck> = job.groups.iter().flat_map(of).collect();
    stuck.sort_by_key(|one| one.inside().values().map(|call| call.time_created_ns).min());
    let (sure, rest): (Vec<Stuck>, Vec<Stuck>) = stuck.into_iter().partition(|one| one.lacks(job));
    let mut waits_in: BTreeMap<usize, &Stuck> = BTreeMap::new();
    for one in &sure {
        for rank in one.inside().into_keys() {
            waits_in.entry(rank).or_insert(one);
        }
    }
    let waits_nowhere = |rank| !waits_in.contains_key(rank);
    let differ = rest.iter().find(|one| one.what != What::Missing && !one.is_passed);
    let reason = || sure.iter().find(|one| one.ranks.iter().any(waits_nowhere));
    let verdict: Vec<&Stuck> = if let Some(one) = differ.or_else(reason) {
        vec![one]
    } else if let Some(first) = sure.first() {
        // They wait for each other: who is missing in this call is in that one.
        let next = first.ranks.iter().find_map(|rank| waits_in.get(rank));
        [Some(first), next.copied()].into_iter().flatten().collect()
    } else {
        let newest = rest.iter().rfind(|one| !one.is_passed && !one.ranks.is_empty());
        let or_passed = newest.or(rest.iter().find(|one| one.is_passed));
        let or_open = or_passed.or(rest.iter().find(|one| one.is_open()));
        or_open.or(rest.last()).into_iter().collect()
    };
    let is_other = |one: &&Stuck| !verdict.iter().any(|ours| std::ptr::eq(*ours, *one));
    let others = sure.iter().filter(is_other).cloned().collect();
    [verdict.into_iter().cloned().collect(), others]
}

fn have_ended(calls: &Calls) -> bool {
    calls.values().all(|call| call.state == State::Completed)
}

/// The first call of a group that not all ranks have left, as far as is known, or else its last;
/// before it those that differ, though all ranks have gone on.
fn of_group<'a>(job: &Job, group: &'a Group<'a>) -> Vec<Stuck<'a>> {
    let mut found = Vec::new();
    for (number, calls) in &group.calls {
        let is_last = group.calls.range(number..).nth(1).is_none();
        // The oldest calls may be lost, and with them all that a rank has made in this group.
        let is_behind = |rank: &usize| match group.last.get(rank) {
            Some(last) => last < number,
            None => group.ranks.contains(rank) && !job.dumps[rank].has_wrapped(),
        };
        let behind: BTreeSet<usize> = job.dumps.keys().copied().filter(is_behind).collect();
        let none_waits = behind.is_empty() || !calls.values().any(|call| may_end_early(&call.op));
        let is_over = group.knows_ends && have_ended(calls) && none_waits;
        let is_passed =
            !group.knows_ends && behind.is_empty() && group.last.values().all(|last| last > number);
        let (what, mut ranks) = match difference(calls, group.ranks.len()) {
            _ if is_over => (What::Missing, BTreeSet::new()),
            // The others can never meet those that make another call.
            Some((What::Operations, odd)) if odd.len() < calls.len() => {
                (What::Missing, &behind | &odd)
            }
            Some(different) if behind.is_empty() => different,
            _ => (What::Missing, behind),
        };
        let is_quiet = what == What::Missing && ranks.is_empty();
        if is_quiet && !is_last && (is_over || !group.knows_ends) {
            continue;
        }
        if is_quiet && !is_over {
            // It has begun on another's device.
            let has_begun = calls.values().any(|call| call.state == State::Started);
            let is_late = |rank: &&usize| has_begun && calls[*rank].state == State::Scheduled;
            ranks = calls.keys().filter(is_late).copied().collect();
        }
        if is_quiet && !is_over && ranks.is_empty() {
            let has_no_file = |rank: &&usize| !job.dumps.contains_key(rank);
            ranks = group.ranks.iter().filter(has_no_file).copied().collect();
        }
        let inside = calls.iter().find(|(rank, _)| !ranks.contains(rank));
        let op = inside.or(calls.first_key_value()).map_or("", |(_, call)| &call.op);
        let (number, calls) = (*number, calls.clone());
        found.push(Stuck { group, number, op, what, ranks, calls, is_passed });
        if !is_passed {
            break;
        }
    }
    found
}

/// The first message of each pair of ranks that only one of them has called, or that differs.
fn of_messages<'a>(job: &Job, group: &'a Group<'a>) -> Vec<Stuck<'a>> {
    // In a dump's names, ranks have their numbers in the group.
    let members: Vec<usize> = group.ranks.iter().copied().collect();
    let global = |local: usize| members.get(local).copied().unwrap_or(local);
    let mut pairs: BTreeMap<_, [Vec<_>; 2]> = BTreeMap::new();
    for (rank, call) in &group.messages {
        let is_open = !group.knows_ends || call.state != State::Completed;
        if let Some((from, to)) = call.peers.filter(|_| is_open) {
            let sides = pairs.entry([global(to), global(from)]).or_default();
            sides[usize::from(call.op == "send")].push((*rank, *call));
        }
    }
    let mut found = Vec::new();
    for ([to, from], [received_by, sent_by]) in pairs {
        let is_lost = |rank| job.dumps.get(rank).is_none_or(Dump::has_wrapped);
        if !group.knows_ends && [to, from].iter().any(is_lost) {
            continue; // Which of them belong together, or whether one is missing, is not known.
        }
        let mut both = received_by.iter().zip(&sent_by);
        let paired = both.len();
        let first = both.clone().next();
        let differ = both.find(|(to, from)| received(to.1) != sent(from.1));
        let alone = received_by.get(paired).map(|call| (call, from));
        let alone = alone.or(sent_by.get(paired).map(|call| (call, to)));
        let (what, ranks, calls) = match (differ, alone, first) {
            (Some((one, other)), _, _) => (What::Sizes, vec![to, from], vec![*one, *other]),
            (None, Some((own, other)), _) => (What::Missing, vec![other], vec![*own]),
            (None, None, Some((one, other))) if group.knows_ends => {
                (What::Missing, vec![], vec![*one, *other])
            }
            _ => continue,
        };
        found.push(Stuck {
            group,
            number: calls[0].1.number,
            op: &calls[0].1.op,
            what,
            ranks: ranks.into_iter().collect(),
            calls: calls.into_iter().collect(),
            is_passed: false,
        });
    }
    found
}
