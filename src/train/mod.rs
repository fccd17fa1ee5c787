//! Training: the definition of a step, the checks of a run, and the run's outputs.
//!
//! Reading order: `schedule.rs`, `config.rs`, `evaluate.rs` and `diverged.rs` (a step and its outcome); `scaler.rs`,
//! `skip.rs`, `counters.rs` and `guarded.rs` (steps that are not taken); `replicas.rs`, `symptoms.rs`, `parity.rs`, `pipelined.rs` and
//! `checks.rs` (do all ranks still train one model?); `finetune.rs` (a pretrained model learns answers); `preset.rs`, `flags/` and `memory.rs` (the settings, and the memory
//! that they need); `metrics.rs`, `journal.rs`, `iterations.rs`, `trace.rs`, `report.rs` and `speedup.rs` (the screens and
//! files of a run).

mod checks;
mod config;
mod counters;
mod diverged;
mod evaluate;
pub mod finetune;
pub(crate) mod flags;
mod guarded;
mod iterations;
mod journal;
mod memory;
pub(crate) mod metrics;
pub mod parity;
mod pipelined;
mod preset;
mod replicas;
pub mod report;
mod scaler;
mod schedule;
mod skip;
pub mod speedup;
mod symptoms;
pub(crate) mod trace;

pub use crate::optim::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use checks::{Checks, End, short_hash};
pub use config::Config;
pub use counters::{Counters, StepSize};
pub use diverged::Diverged;
pub use evaluate::{Due, EvalConfig, Evaluator, evaluate};
pub use flags::{DataFlags, EvalFlags, Fsdp, LogFlags, ModelFlags, OptimFlags, RunFlags, TrainFlags, ZeroFlags};
pub use guarded::{Guarded, GuardedStep, Outcome, Record};
pub use iterations::{Interval, LoggedRun, drawn};
pub use journal::{Evaluation, Journal};
pub use memory::Footprint;
pub(crate) use memory::does_not_fit;
pub use metrics::{Clock, LEGEND, Lap, MetricsFile, Part, Rates, StepOutcome, StepRecord, StepTimes};
pub use pipelined::{PipelinePlan, Pipelined, PipelinedStep, Unpipelined, unpipelined};
pub use preset::{Defaults, Preset};
pub use replicas::{all_hashes, distance};
pub use scaler::{AtMinimum, LossScaler, ScalerConfig, ScalerRule, Unscaled, emulate_half, round_to_half};
pub use schedule::Schedule;
pub use skip::{Bound, Plan, Ranges, SkipPolicy, caught};
pub use symptoms::{Break, Symptoms, leave_out};
