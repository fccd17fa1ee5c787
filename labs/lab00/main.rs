//! lab00's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab00::run, lab00::QUESTIONS[0])
}
