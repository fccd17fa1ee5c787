//! lab06: pipelines, where ranks divide the model by layers.
//!
//! Tensor parallelism sends activations inside every layer. A pipeline sends them only between
//! stages. The order of the passes decides how long ranks wait, and how many activations they keep.
//! One list of operations per rank is checked, simulated, drawn, and then trains the model.
//!
//! Reading order: `lesson.rs` (a pipeline in its plainest form), `run.rs` (what runs in which
//! order), `apparatus` (what a schedule takes, predicted and measured), `flags.rs`, `questions.rs`
//! (what it asks).
//!
//! Compare all schedules: `--compare`; choose one: `--schedule interleaved`; print it as
//! Megatron-LM's log: `--print-order`; break it: `--break early-recv`; save memory:
//! `--recompute 1`; time it: `--bench`.

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{
    Break, Measured, Predicted, Unpipelined, Unplayable, Way, choice, dynamic, log, log_number,
    measure, message_bytes, pipeline_of, programs, rehearse, uneven, unpipelined,
};
pub use flags::Args;
pub use kit;
pub use questions::QUESTIONS;
pub use run::run;
