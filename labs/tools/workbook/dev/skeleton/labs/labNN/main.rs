//! labNN's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(labNN::run, labNN::QUESTIONS[0])
}
