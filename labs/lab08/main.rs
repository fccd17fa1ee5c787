//! lab08's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab08::run, lab08::QUESTIONS[0])
}
