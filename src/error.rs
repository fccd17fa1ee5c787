//! Input that a lab refuses before it starts to work.

use std::fmt;

/// An error in a lab's input: what is wrong, and what to do about it. The lab ends with exit code 2.
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
