//! Where a job stands: the calls that ranks wait in, who is missing in each, and which of them is
//! the reason of the others.

use super::differ::{What, difference, received, sent};
use super::dump::{Dump, State};
use super::job::{At, Group, Job};
use std::collections::BTreeMap;

/// A call that some ranks are in.
#[derive(Clone, Debug)]
pub struct Stuck {
    pub group: usize,
    pub number: i64,
    pub op: String,
    pub why: Why,
    /// The ranks that the verdict names.
    pub ranks: Vec<usize>,
    /// The ranks that are in it, and their calls.
    pub inside: BTreeMap<usize, At>,
    /// Why a rank is missing.
    pub absences: BTreeMap<usize, Absence>,
    /// Whether most ranks agree, so that the others are the odd ones.
    pub has_majority: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Missing,
    Differ(What),
    /// All are in it. Whether it has ended, a recorder may not know.
    Nobody(Option<bool>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    NoFile,
    /// It has made fewer calls in this group, or no counterpart of a message.
    Behind,
    /// Under this number it is in another operation.
    Elsewhere(At),
    /// It has issued the call, and its device has not begun it.
    NotBegun(At),
}

/// What was found.
pub struct Found {
    /// What the verdict says: one call, or all of a circle.
    pub verdict: Vec<Stuck>,
    /// Other calls that ranks wait in.
    pub others: Vec<Stuck>,
}

pub fn find(job: &Job) -> Found {
    let mut stuck = Vec::new();
    let mut passed = Vec::new();
    for at in 0..job.groups.len() {
        stuck.extend(of_group(job, at, &mut passed));
        of_messages(job, at, &mut stuck);
    }
    let since = |one: &Stuck| {
        let created = one.inside.iter().map(|(rank, at)| job.call(*rank, *at).time_created_ns);
        created.min().unwrap_or(i64::MAX)
    };
    stuck.sort_by_key(since);
    passed.sort_by_key(since);
    // Where a rank left no file, and nothing says which calls have ended, it may be missing in any.
    let is_sure = |one: &&Stuck| {
        let is_known = |how: &Absence| *how != Absence::NoFile || job.groups[one.group].knows_ends;
        one.why == Why::Missing && one.absences.values().any(is_known)
    };
    let mut waits_in: BTreeMap<usize, Vec<&Stuck>> = BTreeMap::new();
    for one in stuck.iter().filter(is_sure) {
        for rank in one.inside.keys() {
            waits_in.entry(*rank).or_default().push(one);
        }
    }
    let waits = |rank: &usize, but: &Stuck| {
        waits_in.get(rank).is_some_and(|all| all.iter().any(|one| !same(one, but)))
    };
    let is_reason = |one: &&Stuck| is_sure(one) && one.ranks.iter().any(|rank| !waits(rank, one));
    let differ = stuck.iter().find(|one| matches!(one.why, Why::Differ(_)));
    let verdict = if let Some(one) = differ.or_else(|| stuck.iter().find(is_reason)) {
        vec![one.clone()]
    } else if let Some(first) = stuck.iter().find(is_sure) {
        // They wait for each other: this call's ranks are in that one.
        let mut next = first.ranks.iter().filter_map(|rank| waits_in.get(rank)).flatten();
        let next = next.find(|one| !same(one, first));
        [Some(first), next.copied()].into_iter().flatten().cloned().collect()
    } else {
        let last = |why: fn(&Why) -> bool| stuck.iter().rev().find(|one| why(&one.why));
        let found = last(|why| *why == Why::Missing).or(passed.first());
        let found = found.or(stuck.iter().find(|one| one.why == Why::Nobody(Some(false))));
        found.or(last(|_| true)).cloned().into_iter().collect()
    };
    let is_other = |one: &&Stuck| is_sure(one) && !verdict.iter().any(|ours| same(ours, one));
    Found {
        others: stuck.iter().filter(is_other).cloned().collect(),
        verdict,
    }
}

fn same(one: &Stuck, other: &Stuck) -> bool {
    (one.group, one.number, &one.inside) == (other.group, other.number, &other.inside)
}

/// Whether a rank can end an operation before all others are in it.
fn may_end_early(op: &str) -> bool {
    let op = op.trim_start_matches('_').trim_end_matches("_oop");
    ["broadcast", "reduce", "scatter", "gather"].contains(&op)
}

/// The first call of a group that not all ranks have left, as far as is known, or else its last.
fn of_group(job: &Job, at: usize, passed: &mut Vec<Stuck>) -> Option<Stuck> {
    let group = &job.groups[at];
    let newest = *group.calls.keys().next_back()?;
    for number in group.calls.keys() {
        let mut stuck = of_number(job, at, *number);
        let mut calls = stuck.inside.iter().map(|(rank, at)| job.call(*rank, *at));
        let has_ended = group.knows_ends && calls.all(|call| call.state == State::Completed);
        if has_ended && (stuck.absences.is_empty() || !may_end_early(&stuck.op)) {
            continue;
        }
        let different = difference(job, group, *number);
        let has_others = different
            .as_ref()
            .is_some_and(|one| one.what == What::Operations && one.has_majority);
        if let Some(different) = different {
            if has_others {
                let elsewhere = |rank: &usize| (*rank, Absence::Elsewhere(stuck.inside[rank]));
                stuck.absences.extend(different.ranks.iter().map(elsewhere));
            } else if stuck.absences.is_empty() {
                stuck.why = Why::Differ(different.what);
                (stuck.ranks, stuck.has_majority) = (different.ranks, different.has_majority);
            }
            let are_gone = group.last.iter().all(|(_, last)| last > number);
            if !group.knows_ends
                && are_gone
                && !stuck.absences.values().any(|how| *how == Absence::Behind)
            {
                passed.push(finished(stuck));
                continue;
            }
        }
        let is_quiet = stuck.absences.is_empty() && stuck.why == Why::Missing;
        if is_quiet && group.knows_begins {
            let is_scheduled =
                |rank: &usize, at: &At| job.call(*rank, *at).state == State::Scheduled;
            let late = stuck.inside.iter().filter(|(rank, at)| is_scheduled(rank, at));
            let late: Vec<_> = late.map(|(rank, at)| (*rank, Absence::NotBegun(*at))).collect();
            if late.len() < stuck.inside.len() {
                stuck.absences.extend(late);
            }
        }
        if is_quiet && stuck.absences.is_empty() {
            if !group.knows_ends && *number < newest {
                continue;
            }
            let without = group.ranks.iter().filter(|rank| !job.dumps.contains_key(rank));
            stuck.absences.extend(without.map(|rank| (*rank, Absence::NoFile)));
            let waits = |(rank, at): (&usize, &At)| !job.call(*rank, *at).retired;
            if stuck.absences.is_empty() {
                let is_open = group.knows_ends || (group.retires && stuck.inside.iter().any(waits));
                stuck.why = Why::Nobody(is_open.then_some(false));
            }
        }
        return Some(finished(stuck));
    }
    let last = Stuck { absences: BTreeMap::new(), ..of_number(job, at, newest) };
    Some(Stuck { why: Why::Nobody(group.knows_ends.then_some(true)), ..last })
}

/// The calls of one number, and the ranks that have made fewer.
fn of_number(job: &Job, at: usize, number: i64) -> Stuck {
    let group = &job.groups[at];
    let present = &group.calls[&number];
    // The oldest calls may be lost, and with them all that a rank has made in this group.
    let is_behind = |rank: &usize| match group.last.get(rank) {
        Some(last) => *last < number,
        None => group.ranks.contains(rank) && !job.dumps[rank].has_wrapped(),
    };
    let behind = job.dumps.keys().copied().filter(is_behind);
    Stuck {
        group: at,
        number,
        op: most_called(job, group, number),
        why: Why::Missing,
        ranks: Vec::new(),
        inside: present.iter().map(|(rank, all)| (*rank, all[0])).collect(),
        absences: behind.map(|rank| (rank, Absence::Behind)).collect(),
        has_majority: true,
    }
}

/// The ranks that are missing are not in it.
fn finished(mut stuck: Stuck) -> Stuck {
    if stuck.why == Why::Missing {
        stuck.ranks = stuck.absences.keys().copied().collect();
        stuck.inside.retain(|rank, _| !stuck.absences.contains_key(rank));
    }
    stuck
}

/// The operation of most ranks; of those that as many call, the lowest rank's.
fn most_called(job: &Job, group: &Group, number: i64) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for rank in group.calls[&number].keys() {
        *counts.entry(group.op(job, *rank, number)).or_default() += 1;
    }
    let most = counts.values().max();
    let mut ops = group.calls[&number].keys().map(|rank| group.op(job, *rank, number));
    ops.find(|op| counts.get(op) == most).unwrap_or_default()
}

/// The first message of each pair of ranks that only one of them has called.
fn of_messages(job: &Job, group: usize, stuck: &mut Vec<Stuck>) {
    let Group { ranks, messages, knows_ends, .. } = &job.groups[group];
    // In a dump's names, ranks have their numbers in the group.
    let members: Vec<usize> = ranks.iter().copied().collect();
    let global = |local: usize| members.get(local).copied().unwrap_or(local);
    let mut pairs: BTreeMap<[usize; 2], [Vec<(usize, At)>; 2]> = BTreeMap::new();
    for (rank, at) in messages.iter().flat_map(|(rank, all)| all.iter().map(|at| (*rank, *at))) {
        let call = job.call(rank, at);
        if let Some((from, to)) =
            call.peers.filter(|_| !knows_ends || call.state != State::Completed)
        {
            let pair = pairs.entry([global(to), global(from)]).or_default();
            pair[usize::from(call.op == "send")].push((rank, at));
        }
    }
    for (ends, [receives, sends]) in pairs {
        let is_lost = |rank| job.dumps.get(rank).is_none_or(Dump::has_wrapped);
        if !knows_ends && ends.iter().any(is_lost) {
            continue; // Which of them belong together, or whether one is missing, is not known.
        }
        let both = receives.iter().zip(&sends).map(|(one, other)| [*one, *other]);
        let elements = |[to, from]: &[(usize, At); 2]| {
            (received(job.call(to.0, to.1)), sent(job.call(from.0, from.1)))
        };
        let differ = both.clone().find(|both| elements(both).0 != elements(both).1);
        let paired = both.len();
        let alone = receives.get(paired).map(|own| (*own, ends[1]));
        let alone = alone.or(sends.get(paired).map(|own| (*own, ends[0])));
        let (why, inside, absent) = match (differ, alone) {
            (Some(both), _) => (Why::Differ(What::Sizes), both.to_vec(), None),
            (None, Some((own, other))) => (Why::Missing, vec![own], Some(other)),
            (None, None) => (Why::Nobody(Some(false)), both.take(1).flatten().collect(), None),
        };
        let Some(call) = inside.first().map(|(rank, at)| job.call(*rank, *at)) else {
            continue;
        };
        if knows_ends | (why != Why::Nobody(Some(false))) {
            let how = |other| {
                if job.dumps.contains_key(&other) {
                    Absence::Behind
                } else {
                    Absence::NoFile
                }
            };
            stuck.push(finished(Stuck {
                group,
                number: call.p2p_seq_id,
                op: call.op.clone(),
                why,
                ranks: if why == Why::Differ(What::Sizes) {
                    vec![ends[0].min(ends[1]), ends[0].max(ends[1])]
                } else {
                    vec![]
                },
                inside: inside.into_iter().collect(),
                absences: absent.map(|other| (other, how(other))).into_iter().collect(),
                has_majority: false,
            }));
        }
    }
}
