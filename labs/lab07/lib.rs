//! lab07 · Three axes of parallelism in one job.
//!
//! Reading order: `lesson.rs` (one rank's part of all three), `run.rs` (what runs in which order,
//! and one step of the library's trainer), `flags.rs`, `questions.rs` (what it asks), `apparatus/`
//! (what each rank holds and sends by the plan, what it measured, and what a log says about it).
//!
//! Each axis has its own groups of ranks, its own bytes and its own link. With ZeRO-1, data ranks
//! also divide the optimizer's state. The screen shows the map of the mesh, the bytes on each axis,
//! and one rank's losses beside theirs. Read it as a Megatron-LM log: `--report`; rebuild a real
//! log: `--report source`; break it: `--break local-norm`; factor the ranks in a different way:
//! `--tp 1 --pp 4`.

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::logged;
pub use apparatus::{
    Iteration, Job, Measured, Memory, Plan, Run, Sent, collect, one_rank, traffic,
};
pub use flags::{Args, AxesFlags, Break, Report};
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
