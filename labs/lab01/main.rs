//! lab01's program; `lesson.rs` is the lesson.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::main(lab01::run)
}
