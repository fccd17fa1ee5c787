//! The description of one communication call. Ranks compare it with each other, and errors print
//! it.

use super::{Dtype, Reduce};
use serde::{Deserialize, Serialize};
pub use shapes::link::CallKind;
use std::fmt;
use std::panic::Location;

/// A different rank: its numbers in the group and in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub rank: usize,
    pub in_world: usize,
}

/// The rank's number in the world. If the number in its group is different, it follows: `4`,
/// `4 (1 in its group)`.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}", self.in_world)?;
        if self.rank != self.in_world {
            write!(f, " ({} in its group)", self.rank)
        } else {
            Ok(())
        }
    }
}

/// One communication call of one rank.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: CallKind,
    pub dtype: Dtype,
    /// Elements of one rank's part, or of the whole vector in a call without parts: all-reduce,
    /// reduce, broadcast, message. In an all-to-all with unequal parts: the most that one rank
    /// sends to others, or receives from them.
    pub len: usize,
    pub op: Option<Reduce>,
    /// The root of a rooted collective, or the other side of a message.
    pub peer: Option<Peer>,
    /// A message's tag; 0 in a collective.
    pub tag: u16,
    /// The group's name, if it has one.
    pub group: Option<&'static str>,
    /// The call's place in the caller's source.
    pub at: &'static Location<'static>,
    /// The label that the caller gave it.
    pub label: Option<&'static str>,
}

impl Call {
    /// Bytes of the whole vector among `size` ranks: what a [`Link`](super::Link) has to carry.
    pub(super) fn bytes(&self, size: usize) -> usize {
        let one = self.len * self.dtype.size();
        match self.kind.collective() {
            CallKind::AllGather
            | CallKind::ReduceScatter
            | CallKind::Scatter
            | CallKind::Gather
            | CallKind::AllToAll => one * size,
            // A color and a key from each rank.
            CallKind::Split => 16 * size,
            _ => one,
        }
    }

    /// Whether two ranks that meet in these calls mean the same collective.
    pub fn matches(&self, other: &Call) -> bool {
        // Without labels, calls are compared by their place in the source.
        let alike = match (self.label, other.label) {
            (None, None) => std::ptr::eq(self.at, other.at) || self.at == other.at,
            (label, others) => label == others,
        };
        alike && self.is_like(other)
    }

    /// Whether two calls do the same thing to the same amount of data.
    pub(super) fn is_like(&self, other: &Call) -> bool {
        (self.kind, self.dtype, self.len, self.op, self.peer)
            == (other.kind, other.dtype, other.len, other.op, other.peer)
    }

    /// Whether `other` can receive the message that this call sent. Labels must be equal if both
    /// calls have one; the two calls have different places in the source.
    pub(super) fn fits(&self, other: &Call) -> bool {
        let labels = self.label.is_none() || other.label.is_none() || self.label == other.label;
        (self.dtype, self.len) == (other.dtype, other.len) && labels
    }

    /// The rank at the other side of a rooted collective or a message.
    pub(super) fn peer(&self) -> Peer {
        self.peer.expect("a rooted collective has a root, and a message two sides")
    }

    /// The reduction of a reducing call.
    pub(super) fn op(&self) -> Reduce {
        self.op.expect("a reducing call names its reduction")
    }

    /// The call for an error, with the rank's number of it if that is known.
    pub(super) fn info(&self, number: Option<u64>) -> CallInfo {
        CallInfo {
            kind: self.kind,
            dtype: self.dtype,
            len: self.len,
            op: self.op,
            peer: self.peer,
            tag: self.tag,
            group: self.group.map(str::to_string),
            label: self.label.map(str::to_string),
            file: self.at.file().to_string(),
            line: self.at.line(),
            number,
        }
    }
}

/// A call in an error. It may be the call of another process, so it owns its texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInfo {
    pub kind: CallKind,
    pub dtype: Dtype,
    /// Elements of one rank's part, or of the whole vector in a call without parts: all-reduce,
    /// reduce, broadcast, message.
    pub len: usize,
    pub op: Option<Reduce>,
    /// The root of a rooted collective, or the other side of a message.
    pub peer: Option<Peer>,
    /// A message's tag; 0 in a collective.
    pub tag: u16,
    /// The group's name, if it has one.
    pub group: Option<String>,
    /// The label that the caller gave the call.
    pub label: Option<String>,
    /// The call's place in the caller's source: file and line.
    pub file: String,
    pub line: u32,
    /// The rank's call number, from 1 over all its groups, if it is known.
    pub number: Option<u64>,
}

/// A call in words, as [`CallInfo`] prints it.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.info(None).fmt(f)
    }
}

/// `all_reduce (sum, 804,096 f32, labs/lab03/lesson.rs:38)`,
/// `broadcast "weights" in group tensor (root 4, 96 f32, …)`. Ranks have their numbers in the
/// world. `{:#}` adds the number, if it is known: `…, its call 7`.
impl fmt::Display for CallInfo {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(label) = &self.label {
            write!(f, " {label:?}")?;
        }
        if let Some(group) = &self.group {
            write!(f, " in group {group}")?;
        }
        f.write_str(" (")?;
        if let Some(op) = self.op {
            write!(f, "{}, ", op.name())?;
        }
        match (self.kind, self.peer) {
            (CallKind::Send, Some(to)) => write!(f, "to {to}, ")?,
            (CallKind::Recv | CallKind::Probe, Some(from)) => write!(f, "from {from}, ")?,
            (_, Some(root)) => write!(f, "root {root}, ")?,
            (_, None) => {}
        }
        if self.tag != 0 {
            write!(f, "tag {}, ", self.tag)?;
        }
        if !matches!(self.kind, CallKind::Barrier | CallKind::Split | CallKind::Probe) {
            write!(f, "{} {}, ", crate::units::thousands(self.len as u64), self.dtype.name())?;
        }
        write!(f, "{}:{})", self.file, self.line)?;
        match self.number {
            Some(number) if f.alternate() => write!(f, ", its call {number}"),
            _ => Ok(()),
        }
    }
}
