//! lab13: expert parallelism, where ranks hold different experts of every block.
//!
//! A mixture of experts has many MLPs in each block, of which a router chooses a few for each
//! token. Ranks divide the experts, and copies of tokens travel to theirs and back: few FLOPs, and
//! bytes that nobody knows in advance.
//!
//! Reading order: `lesson.rs` (all tokens, gathered), `sample.rs` (tokens and experts for it),
//! `run.rs` (what runs in which order), `apparatus` (a training whose routers are watched, and what
//! it takes), `flags.rs`, `questions.rs` (what it asks).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;
mod sample;

pub use apparatus::{Break, even_copies, even_ranks, heat};
pub use flags::Args;
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
