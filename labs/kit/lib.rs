//! What labs use to run and to speak.
//!
//! Reading order:
//!
//! - `arguments.rs` (the command line), `help.rs` (what `-h` and `--help` say of it) and `flags/`
//!   (flags that several labs have)
//! - `started.rs`: commands as they work where this program was started
//! - `course.rs` and `lesson.rs`: what `labs/labs.toml` says of a lab
//! - `show/`: draws plain values
//! - the screens and files of a run: `journal.rs`, `records.rs`, `metrics.rs`, `events.rs`,
//!   `evaluator.rs`, `trace.rs`, `report.rs`, `progress.rs`, `speedup.rs`,
//!   `settings.rs` (what defines the run, as JSON), `resources.rs` (what it has used)
//! - `footprint.rs`: the memory that a run needs
//! - do all ranks train what one rank would? `lab_checks.rs`, `beside.rs` (the lesson's version and
//!   the library's), `parity.rs`, `symptoms.rs`
//! - `peaks.rs` (this machine's), `busy.rs` (whether other programs work on it), `neighbours.rs`
//!   (which ranks share a node)
//! - `check.rs`: the claims of an exercise's check
//! - for a cluster: `restarts.rs` and `signals.rs` (what starts a job again, or ends it)

mod arguments;
mod beside;
pub mod busy;
pub mod check;
mod course;
mod evaluator;
mod events;
pub mod flags;
mod footprint;
pub mod help;
pub mod journal;
mod lab_checks;
mod lesson;
pub mod metrics;
pub mod neighbours;
mod order;
pub mod parity;
mod peaks;
mod progress;
pub mod records;
pub mod report;
mod resources;
pub mod restarts;
pub mod settings;
pub mod show;
mod signals;
pub mod speedup;
pub mod started;
pub mod symptoms;
pub mod trace;

pub use arguments::{arguments, main};
pub use beside::Beside;
pub use course::{Course, Exercise, Lab, Ladder, Mistake};
pub use evaluator::Evaluator;
pub use flags::{
    CommFlags, DataFlags, EvalFlags, Fsdp, LogFlags, ModelFlags, OptimFlags, RunFlags,
    StrategyFlag, TrainFlags, ZeroFlags,
};
pub use footprint::{Footprint, does_not_fit};
pub use journal::{Evaluation, Journal};
pub use lab_checks::{Checks, End, short_hash};
pub use lesson::{Lesson, ensure_passed, run};
pub use metrics::{
    Clock, LEGEND, Lap, MetricsFile, Part, Rates, StepOutcome, StepRecord, StepTimes,
};
pub use order::{Order, Slowest};
pub use peaks::Peaks;
pub use progress::{Steps, progress};
pub use resources::Resources;
pub use symptoms::{Break, Broken, Symptoms, apply_break};
