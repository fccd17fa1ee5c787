//! lab05-slice · One rank's share of an MLP
//!
//! Eight tensor ranks share Y = GELU(X A) C, cut as on lab05's page. Which slice of C does one rank
//! hold?
//!
//! ```text
//! X     1000 x  4096
//! A     4096 x 16384
//! C    16384 x  4096        one rank: ? x ?
//! ```

/// Rows and columns of its slice.
pub fn slice_of_c() -> [usize; 2] {
    todo!("[rows, columns]")
}
