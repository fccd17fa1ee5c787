//! One parameter: its name and its size.

use std::borrow::Cow;

/// A parameter's name, and its shape: rows and columns, or the length of a vector.
pub type Named = (String, Vec<usize>);

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
        }
    }

    /// A gain, or the bias of a norm or of a row-parallel matrix.
    pub(super) fn copied(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter {
            name: name.into(),
            rows: length,
            columns: None,
            divided: false,
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
