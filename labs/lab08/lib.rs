//! lab08 · Surviving bad steps.
//!
//! Reading order: `lesson.rs` (a training that skips steps, and goes back to what it has saved),
//! `skipping/` (a training whose steps may be skipped or refused), `run.rs` (the lab's story: a
//! damaged run, its spike, and the same run without the bad steps), `flags.rs`, `questions.rs`
//! (what it asks), `apparatus/` (how a spike is found, what a training drew, and the other runs).
//!
//! Two ranks train a tiny GPT on a text with four bad steps. The lab finds the spike in the metrics
//! file, resumes without these steps, and compares three ways to skip them. Find spikes in any
//! metrics file: `--find-spikes FILE`; skip other steps: `--train-range-to-skip 10 20 25 30`; print
//! what is drawn: `--print-tokens`; break it: `--break one-rank`. Train in fp16 with a loss scale:
//! `--fp16`.

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;
pub mod skipping;

pub use apparatus::spikes;
pub use apparatus::{Counts, Job, METRICS, Metrics, Poison, Run, Training, Way};
pub use flags::{Args, Break, LoadOn, Mode, Policy, RestartFlags, ScalingFlags, SurviveFlags};
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
