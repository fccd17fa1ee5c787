//! lab00's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::main(lab00::run)
}
