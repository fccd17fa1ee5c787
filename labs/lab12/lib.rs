//! lab12: context parallelism, where ranks hold different positions of the same sequences.
//!
//! Tensor, pipeline and ZeRO ranks divide a model. A long sequence's activations stay, and its
//! attention grows with the square of its length. Context ranks divide the positions: each computes
//! the norms, MLPs and losses of its own, and attention fetches the keys and values of the others.
//!
//! Reading order: `lesson.rs` (all keys and values, gathered), `run.rs` (what runs in which order),
//! `apparatus` (a model whose sequences are shared, and what it takes), `flags.rs`, `questions.rs`
//! (what it asks).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{Break, Cell, Grid, Packed, ring_beside_ulysses};
pub use flags::Args;
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
