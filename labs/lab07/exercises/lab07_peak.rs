//! lab07-peak · Read the schedule from the memory
//!
//! Two ranks of the log, in MB of 2^20 bytes. Each of their passes is one layer of one
//! micro-batch: s = 2048 tokens, b = 2 sequences, h = 2048 wide, on t = 2 tensor ranks. With
//! selective recomputation a pass keeps s b h (10 + 24/t) bytes until its backward pass. How many
//! had each rank kept at its peak?
//!
//! ```text
//!              allocated   peak    besides
//! first stage  1,942       7,706
//! last stage   1,958       6,714   197 for the logits of one micro-batch
//! ```

/// Passes that the first and the last stage kept. What is left over is less than one pass.
pub fn kept() -> (usize, usize) {
    todo!("two numbers of passes")
}
