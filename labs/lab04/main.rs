//! lab04's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab04::run, lab04::QUESTIONS[0])
}
