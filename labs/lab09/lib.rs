//! Universal checkpoints: a training that is saved on some ranks and continues on others.
//!
//! Four ranks train and save. The lab converts their files, resumes the job on other ranks, and
//! compares all parameters and moments bit by bit, and the losses of the steps that follow. Save a
//! different job: `--from dp=4,zero=3`, `--from tp=2,pp=2`; resume it as you like:
//! `--to dp=5,zero=1`. Break it: `--break first-data`. Rebuild a conversion that failed on 768
//! ranks: `--padding`; see which numbers of ranks would have failed, too: `--plot`.
//!
//! Reading order: `lesson.rs` (the idea, and its comparison with the library), `flags.rs`,
//! `questions.rs` (what it asks), `run.rs` (what runs in which order), `apparatus/` (what a job
//! does, and what is shown of it).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::*;
pub use flags::Args;
pub use questions::QUESTIONS;
pub use run::run;
