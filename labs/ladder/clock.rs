//! The time of a step, if the ranks were devices with a slow link: from what each rank computed and
//! sent, in its order.
//!
//! A device computes at a constant rate. The collectives of a group occupy its link one after the
//! other. Each begins when its last rank has started it. Messages leave a rank one after the other.
//! A rank waits where its program waits. So the time is a function of the program: it is the same
//! on a fast and on a busy machine.

use shardlab::comm::{CallKind, Link};
use std::collections::{BTreeMap, VecDeque};

/// What a rank does in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Forward,
    Backward,
    Update,
    /// Waits for other ranks, or for the link.
    Waits,
}

/// Something that a rank did.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Compute {
        doing: Doing,
        layer: usize,
        flops: usize,
        /// Bytes that the rank holds when it is done.
        held: u64,
    },
    /// Collective `number` of this rank begins: `bytes` of the whole vector.
    Start {
        number: usize,
        kind: CallKind,
        bytes: usize,
        near: bool,
        members: Vec<usize>,
    },
    /// The rank needs the result of its collective `number`.
    Wait {
        number: usize,
    },
    Send {
        to: usize,
        bytes: usize,
        near: bool,
    },
    Recv {
        from: usize,
    },
}

/// The devices and their links.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Operations per second.
    pub speed: f64,
    /// Between nodes.
    pub far: Link,
    /// Inside a node.
    pub near: Link,
}

/// As fast against each other as an accelerator and its network are: a gradient takes about as long
/// on the link as in the backward pass that computes it.
pub const CLOCK: Clock = Clock {
    speed: 2e9,
    far: Link { latency: 65e-6, bandwidth: 80e6 },
    near: Link { latency: 3e-6, bandwidth: 4e9 },
};

/// A span of a rank's time, in seconds from the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    pub doing: Doing,
    pub layer: usize,
    pub start: f64,
    pub end: f64,
}

/// What all ranks do, and what is on the link.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Each rank's spans, in order.
    pub ranks: Vec<Vec<Span>>,
    /// Collectives on their links: first to last second, and whether between nodes.
    pub flights: Vec<(f64, f64, bool)>,
}

impl Timeline {
    /// When the last rank is done.
    pub fn seconds(&self) -> f64 {
        let ends = self.ranks.iter().flatten().map(|span| span.end);
        ends.fold(0.0, f64::max)
    }
}

/// A collective of a group: which of its members have started it, the latest of them when, and when
/// it ends.
struct Meeting {
    started: usize,
    latest: f64,
    end: Option<f64>,
}

/// Goes through all ranks' events as far as each of them can go, again and again.
pub(crate) fn replay(clock: &Clock, events: &[Vec<Event>]) -> Timeline {
    let ranks = events.len();
    let mut timeline = Timeline { ranks: vec![Vec::new(); ranks], flights: Vec::new() };
    let mut now = vec![0.0; ranks];
    let mut next = vec![0; ranks];
    // A group's collectives in order, and when its link is free again.
    let mut meetings: BTreeMap<(Vec<usize>, usize), Meeting> = BTreeMap::new();
    let mut free: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
    // Each rank's collectives: its groups, and their numbers in these.
    let mut mine: Vec<BTreeMap<usize, (Vec<usize>, usize)>> = vec![BTreeMap::new(); ranks];
    let mut count: Vec<BTreeMap<Vec<usize>, usize>> = vec![BTreeMap::new(); ranks];
    let mut sending = vec![0.0f64; ranks];
    let mut messages: BTreeMap<(usize, usize), VecDeque<f64>> = BTreeMap::new();
    loop {
        let mut moved = false;
        for rank in 0..ranks {
            while let Some(event) = events[rank].get(next[rank]) {
                let mut until = None;
                match event {
                    Event::Compute { doing, layer, flops, .. } => {
                        let start = now[rank];
                        now[rank] += *flops as f64 / clock.speed;
                        timeline.ranks[rank].push(Span {
                            doing: *doing,
                            layer: *layer,
                            start,
                            end: now[rank],
                        });
                    }
                    Event::Start { number, kind, bytes, near, members } => {
                        let in_group = count[rank].entry(members.clone()).or_default();
                        let key = (members.clone(), *in_group);
                        *in_group += 1;
                        mine[rank].insert(*number, key.clone());
                        let meeting = meetings.entry(key).or_insert(Meeting {
                            started: 0,
                            latest: 0.0,
                            end: None,
                        });
                        meeting.started += 1;
                        meeting.latest = meeting.latest.max(now[rank]);
                        if meeting.started == members.len() {
                            let link = if *near { &clock.near } else { &clock.far };
                            let free = free.entry(members.clone()).or_default();
                            let start = meeting.latest.max(*free);
                            let seconds = link.collective_seconds(*kind, members.len(), *bytes);
                            *free = start + seconds;
                            meeting.end = Some(start + seconds);
                            timeline.flights.push((start, start + seconds, !near));
                        }
                    }
                    Event::Wait { number } => {
                        let meeting = mine[rank].get(number).and_then(|key| meetings.get(key));
                        let Some(end) = meeting.and_then(|meeting| meeting.end) else {
                            break;
                        };
                        until = Some(end);
                    }
                    Event::Send { to, bytes, near } => {
                        let link = if *near { &clock.near } else { &clock.far };
                        let start = now[rank].max(sending[rank]);
                        sending[rank] = start + link.transfer_seconds(*bytes);
                        let arrives = sending[rank] + link.latency;
                        messages.entry((rank, *to)).or_default().push_back(arrives);
                        timeline.flights.push((start, arrives, !near));
                    }
                    Event::Recv { from } => {
                        let arrived = messages.entry((*from, rank)).or_default().pop_front();
                        let Some(arrived) = arrived else {
                            break;
                        };
                        until = Some(arrived);
                    }
                }
                if let Some(until) = until.filter(|until| *until > now[rank]) {
                    timeline.ranks[rank].push(Span {
                        doing: Doing::Waits,
                        layer: 0,
                        start: now[rank],
                        end: until,
                    });
                    now[rank] = until;
                }
                next[rank] += 1;
                moved = true;
            }
        }
        if !moved {
            return timeline;
        }
    }
}
