//! lab09 as a program.

use std::process::ExitCode;

fn main() -> ExitCode {
    kit::main(lab09::run)
}
