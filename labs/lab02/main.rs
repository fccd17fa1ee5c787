//! lab02's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab02::run, lab02::QUESTIONS[0])
}
