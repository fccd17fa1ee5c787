//! Input that a lab refuses before it starts to work.

use std::fmt;

/// An error in a lab's input: what is wrong, and what to do about it. The lab ends with exit
/// code 2.
#[derive(Debug, PartialEq, Eq)]
pub struct BadInput {
    pub what: String,
    pub help: String,
}

impl BadInput {
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> BadInput {
        BadInput { what: printable(&what.into()), help: help.into() }
    }
}

/// Characters of an error. A list in a file may have millions.
const LONGEST: usize = 4000;

/// A text that may quote a file, for a terminal: without control characters, which could clear it,
/// and not too long.
pub fn printable(text: &str) -> String {
    let mut printable = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == LONGEST => {
                printable.push('…');
                break;
            }
            '\n' => printable.push(c),
            c if c.is_control() => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}\nhelp: {}", self.what, self.help)
    }
}

impl std::error::Error for BadInput {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_quotes_does_nothing_to_the_terminal() {
        let error = BadInput::new("its name is \u{1b}[2J\r\nHere", "rename it");
        assert_eq!(error.what, "its name is \\u{1b}[2J\\r\nHere");
        let bytes = "bob\u{1b}]0;OWNED\u{7}\u{1b}[2J\r\u{9b}é";
        assert_eq!(printable(bytes), "bob\\u{1b}]0;OWNED\\u{7}\\u{1b}[2J\\r\\u{9b}é");
        assert_eq!(BadInput::new("x".repeat(1 << 20), "").what.chars().count(), 4001);
    }
}
