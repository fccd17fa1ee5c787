//! lab01's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab01::run, lab01::QUESTIONS[0])
}
