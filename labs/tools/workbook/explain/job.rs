//! All ranks of a job: their dumps, who is in which group, and how the calls of a group go.

use super::dump::{Call, Dump};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the group that all ranks are in.
const WORLD: &str = "0";

pub struct Job<'a> {
    pub dumps: &'a BTreeMap<usize, Dump>,
    /// Where py-spy saw ranks.
    pub stacks: &'a BTreeMap<usize, String>,
    pub groups: Vec<Group<'a>>,
}

/// Calls by rank.
pub type Calls<'a> = BTreeMap<usize, &'a Call>;

/// A group, and what its ranks have called in it.
#[derive(Default)]
pub struct Group<'a> {
    /// `group 1 (tp)`.
    pub name: String,
    pub ranks: BTreeSet<usize>,
    /// Whether a dump says which ranks these are. gloo's dumps seldom do.
    pub is_known: bool,
    /// The collectives, by number and rank.
    pub calls: BTreeMap<i64, Calls<'a>>,
    /// Each rank's messages, in order.
    pub messages: Vec<(usize, &'a Call)>,
    /// The group's number on each rank: the order in which the rank has made its groups.
    ids: BTreeMap<usize, i64>,
    /// The number of the last collective of each rank.
    pub last: BTreeMap<usize, i64>,
    /// Whether the recorder knows which calls have ended.
    pub knows_ends: bool,
}

impl<'a> Job<'a> {
    pub fn new(dumps: &'a BTreeMap<usize, Dump>, stacks: &'a BTreeMap<usize, String>) -> Job<'a> {
        let mut ranks: BTreeSet<usize> = dumps.keys().chain(stacks.keys()).copied().collect();
        ranks.extend(dumps.values().flat_map(|dump| dump.groups.values().flatten()));
        // Ranks have the numbers from 0 on.
        ranks.extend(0..ranks.last().map_or(0, |last| last + 1));
        // The parts of a group that was split have one name: their first ranks tell them apart.
        let mut groups: BTreeMap<(&str, Option<&usize>), Group> = BTreeMap::new();
        for (rank, dump) in dumps {
            // A dump may not know a group that its rank has just begun to use: another one does.
            let told = |name| {
                let mut of_name = dumps.values().filter_map(|dump| dump.groups.get(name));
                of_name.find(|all| all.contains(rank))
            };
            let mut known: BTreeMap<&str, Option<&BTreeSet<usize>>> = BTreeMap::new();
            for call in &dump.entries {
                let name = call.process_group.0.as_str();
                let members = *known.entry(name).or_insert_with(|| told(name));
                let key = (name, members.and_then(BTreeSet::first));
                let group = groups.entry(key).or_insert_with(|| Group {
                    name: call.group_name(),
                    is_known: members.is_some(),
                    ranks: members.cloned().unwrap_or_default(),
                    ..Group::default()
                });
                group.ids.insert(*rank, call.pg_id);
                group.knows_ends |= call.knows_ends;
                if call.is_message() {
                    group.messages.push((*rank, call));
                    continue;
                }
                // Several calls that were coalesced have one number.
                group.calls.entry(call.number).or_default().entry(*rank).or_insert(call);
                let last = group.last.entry(*rank).or_insert(call.number);
                *last = call.number.max(*last);
            }
        }
        if let Some(world) = groups.get_mut(&(WORLD, None)) {
            world.ranks = ranks;
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        guess_members(dumps, &mut groups);
        Job { dumps, stacks, groups }
    }
}

/// Who is in groups of which no dump says it: those that have called in it. gloo's dumps have one
/// entry without a name, for the group that the rank made last, and number its ranks from 0 on: it
/// tells how many they are. So others are in it that have such an entry, and no call in another
/// group of that kind, if that makes as many.
fn guess_members(dumps: &BTreeMap<usize, Dump>, groups: &mut [Group]) {
    let used = groups.iter().flat_map(|group| &group.ids).map(|(rank, id)| (*rank, *id));
    let used: BTreeSet<(usize, i64)> = used.collect();
    let newest: BTreeMap<usize, i64> = used.iter().copied().collect();
    let size = |rank: &usize| dumps[rank].groups.get("").map(BTreeSet::len);
    for group in groups.iter_mut().filter(|group| group.ranks.is_empty()) {
        group.ranks = group.ids.keys().copied().collect();
        let Some((rank, id)) = group.ids.iter().find(|(rank, id)| newest[rank] == **id) else {
            continue;
        };
        let is_free = |other: &&usize| !used.contains(&(**other, *id));
        let others = dumps.keys().filter(is_free).filter(|other| size(other) == size(rank));
        let others: Vec<usize> = others.copied().collect();
        if size(rank) == Some(group.ranks.len() + others.len()) {
            group.ranks.extend(others);
        }
    }
}
