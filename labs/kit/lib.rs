//! What labs use to run and to speak.
//!
//! Reading order:
//!
//! - `arguments.rs` (the command line), `help.rs` (what `-h` and `--help` say of it) and `flags/`
//!   (flags that several labs have)
//! - `commands.rs`: commands as they work where this program was started; `reader.rs`: the folders
//!   of someone who works through the labs
//! - `question.rs` (a question with its answer and the thoughts that lead to others), `predict.rs`
//!   (a lab asks one before it runs)
//! - `course.rs` and `lesson.rs`: what `labs/labs.toml` says of a lab
//! - `show/`: draws plain values
//! - a step of a run: `clock.rs` (how long its parts take), `metrics.rs` and `trace.rs` (the files
//!   of `--metrics` and `--trace`), `records.rs` (its line in the log and in these files)
//! - the whole run: `journal.rs` (its steps and plots), `evaluator.rs`, `report.rs` (the rows about
//!   it), `progress.rs`, `resources.rs` (what it has used)
//! - `footprint.rs`: the memory that a run needs
//! - do all ranks train what one rank would? `lab_checks.rs`, `beside.rs` (the lesson's version and
//!   the library's), `parity.rs`, `symptoms.rs`
//! - `machine.rs` (this one's memory and cores), `peaks.rs` (how fast it is), `other_work.rs`
//!   (whether other programs work on it)
//! - `place.rs` (the node of each rank), `neighbours.rs` (whether a mesh's groups lie inside one)
//! - `restarts.rs`: how often a job was started again; `signals.rs`: a process that is told to end
//! - `number_format.rs`: what numbers become in 16 and 8 bits
//! - `check.rs`: the claims of an exercise's check; `config_json.rs` and `llamas.rs`: published
//!   models' numbers

mod arguments;
mod beside;
pub mod check;
mod clock;
pub mod commands;
pub mod config_json;
mod course;
mod evaluator;
pub mod flags;
mod footprint;
pub mod help;
mod journal;
mod lab_checks;
mod lesson;
pub mod llamas;
pub mod machine;
mod metrics;
pub mod neighbours;
pub mod number_format;
mod other_work;
pub mod parity;
mod peaks;
pub mod place;
pub mod predict;
mod progress;
pub mod question;
pub mod reader;
pub mod records;
pub mod report;
mod resources;
mod restarts;
pub mod show;
pub mod signals;
mod symptoms;
pub mod trace;

pub use arguments::{arguments, lab, main};
pub use beside::Beside;
pub use clock::{Clock, Lap, Part, StepTimes};
pub use course::{Course, Exercise, Lab, Ladder, Mistake, TwoDays, UnderMpi, capitalized};
pub use evaluator::Evaluator;
pub use flags::{
    CommFlags, DataFlags, EvalFlags, LogFlags, ModelFlags, OptimFlags, Order, RunFlags, Slowest,
    StrategyFlag, TrainFlags, ZeroFlags,
};
pub use footprint::{Footprint, does_not_fit};
pub use journal::{Evaluation, Journal};
pub use lab_checks::{Checks, End, short_hash};
pub use lesson::{Lesson, ensure_passed, run};
pub use metrics::MetricsFile;
pub use other_work::OtherWork;
pub use peaks::Peaks;
pub use progress::{Steps, progress};
pub use question::Question;
pub use records::{Rates, StepRecord};
pub use resources::Resources;
pub use restarts::{RESTART_COUNT, restart_count};
pub use symptoms::{Break, Symptoms};
