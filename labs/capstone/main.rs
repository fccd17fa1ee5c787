//! The trainer without a reader's parts: all twelve are the library's. `cargo workbook capstone`
//! builds one with yours.

use capstone::Parts;
use std::process::ExitCode;

fn main() -> ExitCode {
    capstone::main(Parts::library(), &[])
}
