//! lab09-control · From how many ranks on?
//!
//! A group has 40 elements. For n ranks it is padded to a multiple of 2n and cut into n slices.
//! The old rule records all padding on the last rank, and fails where it is longer than the slice.
//!
//! ```text
//! ranks   padded to   slice   padding
//! 3       42          14      2         right: 14 - 2 = 12 elements are left
//! ?       …           …       …         fails
//! ```

/// The smallest number of ranks at which the old rule fails.
pub fn smallest() -> usize {
    todo!("a number of ranks")
}
