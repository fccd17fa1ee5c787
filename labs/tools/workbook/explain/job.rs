//! All ranks of a job: their dumps, who is in which group, and how the calls of a group go.

use super::dump::{Call, Dump, State};
use super::stack::Stack;
use std::collections::{BTreeMap, BTreeSet};

/// The description of the group that all ranks are in.
const WORLD: &str = "default_pg";

/// Groups of which it is worth while to guess who is in them: a file could name a hundred thousand.
const FEW: usize = 64;

pub struct Job {
    pub dumps: BTreeMap<usize, Dump>,
    pub stacks: BTreeMap<usize, Stack>,
    pub groups: Vec<Group>,
    /// Ranks that some dump or file names.
    pub ranks: BTreeSet<usize>,
}

/// A group, and what its ranks have called in it.
#[derive(Default)]
pub struct Group {
    pub name: String,
    pub description: String,
    pub ranks: BTreeSet<usize>,
    /// Whether a dump says which ranks these are. gloo's dumps seldom do.
    pub is_known: bool,
    /// The collectives, by number and rank. Several calls that were coalesced have one number.
    pub calls: BTreeMap<i64, BTreeMap<usize, Vec<At>>>,
    /// Each rank's messages, in order.
    pub messages: BTreeMap<usize, Vec<At>>,
    /// The group's number on each rank: the order in which the rank has made its groups.
    ids: BTreeMap<usize, i64>,
    /// The number of the last collective of each rank.
    pub last: BTreeMap<usize, i64>,
    /// Whether the recorder knows which calls have ended.
    pub knows_ends: bool,
    /// Whether it says of some calls that nobody waits for them any more.
    pub retires: bool,
    /// Whether it knows which calls have begun on the device.
    pub knows_begins: bool,
}

/// A call's place among its rank's.
pub type At = usize;

impl Job {
    pub fn new(dumps: BTreeMap<usize, Dump>, stacks: BTreeMap<usize, Stack>) -> Job {
        let mut ranks: BTreeSet<usize> = dumps.keys().chain(stacks.keys()).copied().collect();
        ranks.extend(dumps.values().flat_map(|dump| dump.groups.values().flatten()));
        // Ranks have the numbers from 0 on.
        ranks.extend(0..ranks.last().map_or(0, |last| last + 1));
        let mut groups = Vec::new();
        let mut named = BTreeMap::new();
        for (rank, dump) in &dumps {
            for (at, call) in dump.entries.iter().enumerate() {
                let group = group_of(&dumps, *rank, call, &mut groups, &mut named);
                groups[group].take(*rank, at, call);
            }
        }
        guess_members(&dumps, &ranks, &mut groups);
        Job { dumps, stacks, groups, ranks }
    }

    pub fn call(&self, rank: usize, at: At) -> &Call {
        &self.dumps[&rank].entries[at]
    }
}

impl Group {
    fn take(&mut self, rank: usize, at: At, call: &Call) {
        self.ids.insert(rank, call.pg_id);
        // gloo may call a call retired that has not ended.
        self.knows_ends |=
            call.state != State::Scheduled || (call.library != "gloo" && !call.retired);
        self.retires |= call.retired;
        self.knows_begins |= call.has_begun();
        if call.is_message() {
            self.messages.entry(rank).or_default().push(at);
            return;
        }
        // The mark around coalesced calls has their number; that around messages has the number of
        // the collective before them.
        let before = |all: &Vec<At>| all.last() == at.checked_sub(1).as_ref();
        let is_first = !self
            .calls
            .get(&call.collective_seq_id)
            .is_some_and(|ranks| ranks.contains_key(&rank));
        let is_around = !is_first || self.messages.get(&rank).is_some_and(before);
        if call.op == "coalesced" && is_around {
            return;
        }
        self.calls
            .entry(call.collective_seq_id)
            .or_default()
            .entry(rank)
            .or_default()
            .push(at);
        let last = self.last.entry(rank).or_insert(call.collective_seq_id);
        *last = call.collective_seq_id.max(*last);
    }

    /// The operation of a rank's calls of one number.
    pub fn op(&self, job: &Job, rank: usize, number: i64) -> String {
        let mut ops: Vec<&str> = self.calls[&number][&rank]
            .iter()
            .map(|at| job.call(rank, *at).op.as_str())
            .collect();
        ops.dedup();
        ops.join("+")
    }
}

/// `group 1 (tp)`, as the dumps call it.
pub fn named(name: &str, description: &str) -> String {
    match description {
        "" | "undefined" => format!("group {name}"),
        _ => format!("group {name} ({description})"),
    }
}

/// The group of a call, which is added where it is new. Two groups may have one name: the parts of
/// a group that was split.
fn group_of(
    dumps: &BTreeMap<usize, Dump>,
    rank: usize,
    call: &Call,
    groups: &mut Vec<Group>,
    named: &mut BTreeMap<String, Vec<usize>>,
) -> usize {
    let (name, description) = &call.process_group;
    let of_name = named.entry(name.clone()).or_default();
    let has_rank = |at: &&usize| !groups[**at].is_known || groups[**at].ranks.contains(&rank);
    if let Some(found) = of_name.iter().find(has_rank) {
        return *found;
    }
    // A rank's own dump may not know a group that it has just begun to use: another one does.
    let told = |dump: &Dump| dump.groups.get(name).filter(|all| all.contains(&rank)).cloned();
    let ranks = told(&dumps[&rank]).or_else(|| dumps.values().find_map(told));
    of_name.push(groups.len());
    groups.push(Group {
        name: name.clone(),
        description: description.clone(),
        is_known: ranks.is_some(),
        ranks: ranks.unwrap_or_default(),
        ..Group::default()
    });
    groups.len() - 1
}

/// Who is in groups of which no dump says it: all ranks in the first one, in another those that
/// have called in it. gloo's dumps have one entry without a name, for the group that the rank made
/// last, and number its ranks from 0 on: it tells how many they are. So others are in it that have
/// such an entry, and no call in another group of that kind, if that makes as many.
fn guess_members(dumps: &BTreeMap<usize, Dump>, all: &BTreeSet<usize>, groups: &mut [Group]) {
    let used = groups.iter().flat_map(|group| &group.ids);
    let used: BTreeSet<(usize, i64)> = used.map(|(rank, id)| (*rank, *id)).collect();
    let newest = |rank| used.range((rank, i64::MIN)..=(rank, i64::MAX)).next_back();
    let are_few = groups.len() <= FEW;
    let mut all = Some(all);
    for group in groups.iter_mut().filter(|group| !group.is_known) {
        let mut ids = group.ids.iter().map(|(rank, id)| (*rank, *id)).filter(|_| are_few);
        let last = ids.find(|(rank, id)| newest(*rank) == Some(&(*rank, *id)));
        let sized = last.and_then(|(rank, id)| Some((id, dumps[&rank].groups.get("")?)));
        let mut ranks: BTreeSet<usize> = group.ids.keys().copied().collect();
        if let Some(all) = all.take_if(|_| group.description == WORLD) {
            ranks.clone_from(all);
        } else if let Some((id, unnamed)) = sized {
            let is_alike = |rank: &&usize| {
                !used.contains(&(**rank, id)) && dumps[rank].groups.get("") == Some(unnamed)
            };
            let others: BTreeSet<usize> = dumps.keys().filter(is_alike).copied().collect();
            if ranks.len() + others.len() == unnamed.len() {
                ranks.extend(others);
            }
        }
        group.ranks = ranks;
    }
}
