//! Errors and notices, on stderr.

use std::io::{self, Write};
use std::sync::OnceLock;

/// How the program folds a text for its terminal.
static FOLD: OnceLock<fn(&str) -> String> = OnceLock::new();

/// From now on errors and notices are folded by `fold`. The first call counts.
pub fn fold_with(fold: fn(&str) -> String) {
    FOLD.set(fold).ok();
}

/// Prints an error or a notice to stderr.
pub fn complain(text: &str) {
    let text = FOLD.get().map_or(text.to_owned(), |fold| fold(text));
    // In one piece: other processes may write to the same terminal. Nothing is left to be done if it is closed.
    io::stderr().write_all(format!("{text}\n").as_bytes()).ok();
}
