//! One parameter: its name and its size.

use std::borrow::Cow;

/// A parameter's name, and its shape: rows and columns, or the length of a vector.
pub type Named = (String, Vec<usize>);

/// What of a block a parameter belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All that computes for every token: attention, norms, an MLP, a router, a shared expert.
    #[default]
    Common,
    /// One expert, by its number among all of the block. Not all data ranks need to hold it.
    Expert(usize),
    /// The bias by which a router selects. The load of experts moves it, which is its gradient.
    SelectionBias,
}

impl Part {
    pub fn is_expert(self) -> bool {
        matches!(self, Part::Expert(_))
    }
}

/// One of a block's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockParameter {
    /// Inside of the block: `qkv.weight`.
    pub name: Cow<'static, str>,
    pub rows: usize,
    /// `None`: a vector, such as a norm's gain.
    pub columns: Option<usize>,
    /// Whether tensor ranks divide it. Each has a copy of all others.
    pub divided: bool,
    pub part: Part,
}

impl BlockParameter {
    pub(super) fn matrix<N: Into<Cow<'static, str>>>(
        name: N,
        rows: usize,
        columns: usize,
    ) -> BlockParameter {
        BlockParameter {
            name: name.into(),
            rows,
            columns: Some(columns),
            divided: true,
            part: Part::Common,
        }
    }

    /// A gain, or the bias of a norm or of a row-parallel matrix.
    pub(super) fn copied(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter {
            name: name.into(),
            rows: length,
            columns: None,
            divided: false,
            part: Part::Common,
        }
    }

    /// The bias of a column-parallel matrix, of whose rows each tensor rank has some.
    pub(super) fn bias(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter { divided: true, ..BlockParameter::copied(name, length) }
    }

    pub fn dims(&self) -> Vec<usize> {
        [self.rows].into_iter().chain(self.columns).collect()
    }

    pub fn numel(&self) -> u64 {
        self.rows as u64 * self.columns.unwrap_or(1) as u64
    }
}
