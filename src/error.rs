//! Input that a lab refuses before it starts to work.

use std::fmt;

/// What is wrong with the input, and what to do about it. Labs end with exit code 2 on it, with 1 on any other error.
#[derive(Debug, PartialEq, Eq)]
pub struct BadInput {
    pub what: String,
    pub help: String,
}

impl BadInput {
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> BadInput {
        BadInput { what: what.into(), help: help.into() }
    }
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.what, self.help)
    }
}

impl std::error::Error for BadInput {}

/// What a lab's `main` returns: prints an error as `error: …` and turns it into the exit code.
pub fn exit_code(result: anyhow::Result<()>) -> std::process::ExitCode {
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}
