//! The time of a step, if the ranks were devices with a slow link: from what each rank computed and
//! sent, in its order.
//!
//! A device computes at a constant rate. The collectives of a group occupy its link one after the
//! other. Each begins when its last rank has started it. Messages leave a rank one after the other.
//! A rank waits where its program waits. So the time is a function of the program: it is the same
//! on a fast and on a busy machine.

use kit::show::{Activity, Interval};
use shardlab::comm::{CallKind, Link};
use std::collections::{BTreeMap, VecDeque};

/// What a rank does in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    Forward,
    Backward,
    Update,
}

impl Doing {
    fn activity(self) -> Activity {
        match self {
            Doing::Forward => Activity::FORWARD,
            Doing::Backward => Activity::BACKWARD,
            Doing::Update => Activity::OPTIMIZER,
        }
    }
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
        link: Link,
        members: Vec<usize>,
    },
    /// The rank needs the result of its collective `number`.
    Wait {
        number: usize,
    },
    Send {
        to: usize,
        bytes: usize,
        link: Link,
    },
    Recv {
        from: usize,
    },
}

/// Operations per second of a device. It and the links are as fast against each other as an
/// accelerator and its network are: a gradient takes about as long on the link as in the backward
/// pass that computes it.
pub(crate) const SPEED: f64 = 2e9;
/// The link between nodes.
pub(crate) const FAR: Link = Link { latency: 65e-6, bandwidth: 80e6 };
/// The link inside a node.
pub(crate) const NEAR: Link = Link { latency: 3e-6, bandwidth: 4e9 };

/// A collective of a group: which of its members have started it, the latest of them when, and when
/// it ends.
#[derive(Default)]
struct Meeting {
    started: usize,
    latest: f64,
    end: Option<f64>,
}

/// Goes through all ranks' events as far as each of them can go, again and again. Returns what each
/// rank does, in order, in seconds from the beginning.
pub(crate) fn replay(events: &[Vec<Event>]) -> Vec<Vec<Interval>> {
    let ranks = events.len();
    let mut timeline = vec![Vec::new(); ranks];
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
                    Event::Compute { doing, flops, .. } => {
                        let start = now[rank];
                        now[rank] += *flops as f64 / SPEED;
                        let activity = doing.activity();
                        timeline[rank].push(Interval { activity, start, end: now[rank] });
                    }
                    Event::Start { number, kind, bytes, link, members } => {
                        let in_group = count[rank].entry(members.clone()).or_default();
                        let key = (members.clone(), *in_group);
                        *in_group += 1;
                        mine[rank].insert(*number, key.clone());
                        let meeting = meetings.entry(key).or_default();
                        meeting.started += 1;
                        meeting.latest = meeting.latest.max(now[rank]);
                        if meeting.started == members.len() {
                            let free = free.entry(members.clone()).or_default();
                            let start = meeting.latest.max(*free);
                            let seconds = link.collective_seconds(*kind, members.len(), *bytes);
                            *free = start + seconds;
                            meeting.end = Some(start + seconds);
                        }
                    }
                    Event::Wait { number } => {
                        let meeting = mine[rank].get(number).and_then(|key| meetings.get(key));
                        let Some(end) = meeting.and_then(|meeting| meeting.end) else {
                            break;
                        };
                        until = Some(end);
                    }
                    Event::Send { to, bytes, link } => {
                        let start = now[rank].max(sending[rank]);
                        sending[rank] = start + link.transfer_seconds(*bytes);
                        let arrives = sending[rank] + link.latency;
                        messages.entry((rank, *to)).or_default().push_back(arrives);
                    }
                    Event::Recv { from } => {
                        let arrived = messages.entry((*from, rank)).or_default().pop_front();
                        let Some(arrived) = arrived else {
                            break;
                        };
                        until = Some(arrived);
                    }
                }
                if let Some(end) = until.filter(|until| *until > now[rank]) {
                    let activity = Activity::WAITING;
                    timeline[rank].push(Interval { activity, start: now[rank], end });
                    now[rank] = end;
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
