//! A tensor in memory.

/// A rank's part, or the whole: elements as bytes, and their shape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}
