//! lab05-slice · One rank's share of an MLP
//!
//! Eight tensor ranks share the MLP of a block, Z = gelu(X A) B, without sequence parallelism. Which part of it does one rank
//! hold, and what leaves it in the forward pass? All numbers are f32: 4 bytes each.
//!
//! ```text
//!               the whole             one of 8 ranks
//!
//! X         1000 x  4096        1000 x 4096
//! A         4096 x 16384           ? x ?
//! B        16384 x  4096           ? x ?
//! Z         1000 x  4096        1000 x 4096       sends ? bytes for it
//! ```
//!
//! Paper is enough. An all-reduce on a ring sends as few bytes as possible.

/// Rank 0's share. Every other rank's has the same shapes.
pub struct Answers {
    /// Rows and columns of its slice of A, and of its slice of B.
    pub a: [u64; 2],
    pub b: [u64; 2],
    /// Bytes that it sends in the forward pass.
    pub bytes: u64,
}

pub fn answers() -> Answers {
    todo!("Answers {{ a: [0, 0], b: [0, 0], bytes: 0 }}, with your numbers")
}
