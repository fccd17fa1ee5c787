//! The grid of groups.

/// A direction in the grid of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    Data,
    Pipeline,
    Tensor,
}
