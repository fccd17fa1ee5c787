//! lab11-state · Three plans for 7 billion parameters
//!
//! Before anything runs: what does a rank hold of a model with 7 billion parameters? A parameter takes 2 bytes, its
//! gradient 4 and its optimizer 12. Fill in the last column, by hand:
//!
//! ```text
//! plan        dp  tp  pp  zero     a rank holds
//! DDP          8   1   1     0     7 billion × 18 bytes = 126 GB
//! A            8   1   1     1     ?
//! B            2   4   1     0     ?
//! C            2   2   2     1     ?
//! ```
//!
//! `dp`, `tp` and `pp` are data ranks, tensor ranks and stages, and `zero` is ZeRO's stage. All parameters are divided alike.

/// The GB of a rank under plans A, B and C: 1 GB is 10^9 bytes.
pub fn gigabytes() -> [f64; 3] {
    todo!("for instance [126.0, 126.0, 126.0]")
}
