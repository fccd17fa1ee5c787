//! lab10 · Back to libraries: one model under every strategy, with the settings and the lines of
//! the tools that people use.
//!
//! Libraries such as DeepSpeed hide the strategies of the last labs behind a configuration. This
//! lab takes the same settings, runs one Llama under each strategy, and measures what a rank holds
//! and sends, and how long a step takes.
//!
//! Reading order: `lesson.rs` (from settings to a rank's share of the model), `run.rs` (which
//! strategies run, and the checks), `flags.rs`, `questions.rs` (what it asks), and `apparatus/`
//! (the jobs that are measured, a text under every strategy, and a model's files).

mod apparatus;
pub mod flags;
pub mod lesson;
mod questions;
mod run;

pub use apparatus::{
    Benchmark, Continuation, DsConfig, Harness, KvCache, Measured, Model, PipelineConfig, Point,
    Timed, TokenSampling, ZeroInference, all, generate, make_ds_config, pretrained, roofline_plot,
    run_distributed_benchmark, source, stages,
};
pub use flags::Args;
pub use kit::{self, Peaks};
pub use questions::QUESTIONS;
pub use run::run;
pub use shapes::config_json::to_config;
