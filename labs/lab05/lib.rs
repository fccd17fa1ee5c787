//! lab05: tensor and sequence parallelism, where ranks share every layer.
//!
//! ZeRO shards what a rank holds, but each rank still computes whole layers. Tensor parallelism
//! shards the computation, and the ranks add up their results twice per block and pass. Sequence
//! parallelism also shards what lies between the matrices.
//!
//! Reading order: `lesson.rs` (one shared layer), `run.rs` (what runs in which order), `apparatus`
//! (a model, shared, and what it takes), `flags.rs`, `questions.rs` (what it asks).
//!
//! Draw it: `--show gemm`, `--show mesh`; break it: `--break no-g`; time it: `--bench`; or train
//! with it, together with data parallelism and ZeRO: `--tp 2 --ranks 4 --zero 1`.

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{Break, Broken, Example, gemm, products};
pub use flags::Args;
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
