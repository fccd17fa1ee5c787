//! What a rank is doing: the description of one communication call, compared between ranks and printed in errors.

use super::{Dtype, Reduce};
use std::fmt;
use std::panic::Location;

/// The communication calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Barrier,
    AllReduce,
    StartAllReduce,
    StartReduce,
    StartAllGather,
    StartReduceScatter,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    Scatter,
    Gather,
    AllToAll,
    Split,
    Send,
    Recv,
    Probe,
}

impl Kind {
    /// The method of [`Comm`](super::Comm) that makes it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Barrier => "barrier",
            Kind::AllReduce => "all_reduce",
            Kind::StartAllReduce => "start_all_reduce",
            Kind::StartReduce => "start_reduce",
            Kind::StartAllGather => "start_all_gather",
            Kind::StartReduceScatter => "start_reduce_scatter",
            Kind::Reduce => "reduce",
            Kind::Broadcast => "broadcast",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::Scatter => "scatter",
            Kind::Gather => "gather",
            Kind::AllToAll => "all_to_all",
            Kind::Split => "split",
            Kind::Send => "send",
            Kind::Recv => "recv",
            Kind::Probe => "probe",
        }
    }
}

/// Another rank, as a group and as the world count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub rank: usize,
    pub in_world: usize,
}

/// The rank's number in the world, and where that differs, in its group: `4`, `4 (1 in its group)`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.in_world)?;
        if self.rank != self.in_world { write!(f, " ({} in its group)", self.rank) } else { Ok(()) }
    }
}

/// One communication call of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    pub dtype: Dtype,
    /// Elements that one rank contributes (all-reduce, broadcast, send: the vector; gather, scatter: one rank's part).
    pub len: usize,
    pub op: Option<Reduce>,
    /// The root of a rooted collective, the other side of a message.
    pub peer: Option<Peer>,
    /// A message's tag; 0 in a collective.
    pub tag: u16,
    /// The group's name, if it has one.
    pub group: Option<&'static str>,
    /// Where in the caller's source the call stands.
    pub at: &'static Location<'static>,
    /// What the caller calls it, if not by its place.
    pub label: Option<&'static str>,
}

impl Call {
    /// The bytes of the whole vector, where `size` ranks meet: what a [`Link`](super::Link) has to carry.
    pub(super) fn bytes(&self, size: usize) -> usize {
        let one = self.len * self.dtype.size();
        match self.kind {
            Kind::AllGather | Kind::ReduceScatter | Kind::Scatter | Kind::Gather | Kind::AllToAll => one * size,
            Kind::StartAllGather | Kind::StartReduceScatter => one * size,
            // A color and a key from each.
            Kind::Split => 16 * size,
            _ => one,
        }
    }

    /// Whether two ranks that meet in these calls mean the same collective.
    pub fn matches(&self, other: &Call) -> bool {
        self.is_like(other) && self.has_label_of(other)
    }

    /// Whether two calls do the same to the same amount of data.
    pub(super) fn is_like(&self, other: &Call) -> bool {
        (self.kind, self.dtype, self.len, self.op, self.peer)
            == (other.kind, other.dtype, other.len, other.op, other.peer)
    }

    /// Whether two calls have the same label: by default their place in the source.
    fn has_label_of(&self, other: &Call) -> bool {
        match (self.label, other.label) {
            (None, None) => std::ptr::eq(self.at, other.at) || self.at == other.at,
            (label, others) => label == others,
        }
    }

    /// Whether a message that was sent in this call fits one that is received in `other`. Labels count if both have one: the
    /// two stand in different places.
    pub(super) fn fits(&self, other: &Call) -> bool {
        let labels = self.label.is_none() || other.label.is_none() || self.label == other.label;
        (self.dtype, self.len) == (other.dtype, other.len) && labels
    }

    /// `labs/lab03_ddp_gpt.rs:141`
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.at.file(), self.at.line())
    }
}

/// `all_reduce (sum, 804,096 f32, labs/lab03_ddp_gpt.rs:141)`, `broadcast "weights" in group tensor (root 4, 96 f32, …)`.
/// Ranks are numbers in the world.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(label) = self.label {
            write!(f, " {label:?}")?;
        }
        if let Some(group) = self.group {
            write!(f, " in group {group}")?;
        }
        f.write_str(" (")?;
        if let Some(op) = self.op {
            write!(f, "{}, ", op.name())?;
        }
        match (self.kind, self.peer) {
            (Kind::Send, Some(to)) => write!(f, "to {to}, ")?,
            (Kind::Recv | Kind::Probe, Some(from)) => write!(f, "from {from}, ")?,
            (_, Some(root)) => write!(f, "root {root}, ")?,
            (_, None) => {}
        }
        if self.tag != 0 {
            write!(f, "tag {}, ", self.tag)?;
        }
        if !matches!(self.kind, Kind::Barrier | Kind::Split | Kind::Probe) {
            write!(f, "{} {}, ", crate::show::thousands(self.len as u64), self.dtype.name())?;
        }
        write!(f, "{})", self.place())
    }
}
