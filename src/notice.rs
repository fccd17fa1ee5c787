//! Errors and notices, on stderr.

use std::io::{self, Write};
use std::sync::OnceLock;

/// How the program prints a text for its terminal.
static PRINT: OnceLock<fn(&str)> = OnceLock::new();

/// From now on errors and notices are printed by `print`. The first call counts.
pub fn print_with(print: fn(&str)) {
    PRINT.set(print).ok();
}

/// Prints an error or a notice to stderr.
pub fn complain(text: &str) {
    PRINT.get().unwrap_or(&(print as fn(&str)))(text);
}

/// Prints a text to stderr as it is.
pub fn print(text: &str) {
    // In one piece: other processes may write to the same terminal. Nothing is left to be done if
    // it is closed.
    io::stderr().write_all(format!("{text}\n").as_bytes()).ok();
}
