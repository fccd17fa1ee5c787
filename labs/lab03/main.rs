//! lab03's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab03::run, lab03::QUESTIONS[0])
}
