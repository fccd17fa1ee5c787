//! lab13-counts · Who gets how many
//!
//! Four ranks hold eight experts, two each, in rank order. Rank 1 has six tokens, and its router
//! has chosen two experts for each. A copy of the token goes to each of them. How many copies go
//! from rank 1 to each rank, itself among them?
//!
//! ```text
//! token          0     1     2     3     4     5
//! its experts   2 5   3 2   6 7   0 2   1 6   3 4
//!
//! rank           0     1     2     3
//! copies         ?     ?     ?     ?
//! ```

/// Copies from rank 1 to each rank, in rank order.
pub fn copies() -> [usize; 4] {
    todo!("[to rank 0, to rank 1, to rank 2, to rank 3]")
}
