//! What labs use to run and to speak. Each folder is a room, and knows only rooms above it:
//!
//! - `process/`: how this process was started, and which signal ends it; exit codes are in the
//!   library's `launch`
//! - `show/`: draws plain values
//! - `machine/`: this one's memory, cores and speed, and where ranks are
//! - `course/`: what `labs/labs.toml` says of labs, questions before a run, an exercise's check
//! - `flags/`: the command line, its flags and its help
//! - `record/`: what a run writes down and shows of itself
//! - `checks/`: do all ranks train what one rank would?
//! - `order/`: the steps of a lab's run, the same in every lab
//! - `number_format.rs`: what numbers become in 16 and 8 bits

mod checks;
mod course;
pub mod flags;
pub mod machine;
pub mod number_format;
mod order;
mod process;
mod record;
pub mod show;

pub use checks::{Beside, Break, Checks, End, Evaluator, Symptoms, parity, short_hash, steady};
pub use course::{
    Ask, Course, Exercise, Lab, Ladder, Lesson, Mistake, Question, TwoDays, UnderMpi, capitalized,
    ensure_passed, exercise_check as check, paths, predict, question, run,
};
pub use flags::{
    CommFlags, DataFlags, EvalFlags, LogFlags, ModelFlags, OptimFlags, Order, RunFlags, Slowest,
    StrategyFlag, TrainFlags, ZeroFlags, arguments, explain, help, lab, main,
};
pub use machine::{Footprint, OtherWork, Peaks, Resources, does_not_fit, neighbours, place};
pub use order::LabRun;
pub use process::{RESTART_COUNT, commands, reader, restart_count, signals};
pub use record::{
    Clock, Evaluation, Journal, Lap, MetricsFile, Part, Rates, StepRecord, StepTimes, Steps,
    output, progress, records, report, trace,
};
