//! lab13's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab13::run, lab13::QUESTIONS[0])
}
