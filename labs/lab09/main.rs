//! lab09 as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::lab(lab09::run, lab09::QUESTIONS[0])
}
