//! One parameter: its name and its size.

/// A parameter's name, and its shape: rows and columns, or the length of a vector.
pub type Named = (String, Vec<usize>);

/// One of a block's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockParameter {
    /// Inside of the block: `qkv.weight`.
    pub name: &'static str,
    pub rows: usize,
    /// `None`: a vector, such as a norm's gain.
    pub columns: Option<usize>,
    /// Whether tensor ranks divide it. Each has a copy of all others.
    pub divided: bool,
}

impl BlockParameter {
    pub(super) const fn matrix(name: &'static str, rows: usize, columns: usize) -> BlockParameter {
        BlockParameter { name, rows, columns: Some(columns), divided: true }
    }

    /// A gain, or the bias of a norm or of a row-parallel matrix.
    pub(super) const fn copied(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter { name, rows: length, columns: None, divided: false }
    }

    /// The bias of a column-parallel matrix, of whose rows each tensor rank has some.
    pub(super) const fn bias(name: &'static str, length: usize) -> BlockParameter {
        BlockParameter { divided: true, ..BlockParameter::copied(name, length) }
    }

    pub fn dims(&self) -> Vec<usize> {
        [self.rows].into_iter().chain(self.columns).collect()
    }

    pub fn numel(&self) -> u64 {
        self.rows as u64 * self.columns.unwrap_or(1) as u64
    }
}
