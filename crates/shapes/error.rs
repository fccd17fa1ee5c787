//! Input that a lab refuses before it starts to work.

/// An error in a lab's input: what is wrong, and what to do about it. The lab ends with exit
/// code 2.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}\nhelp: {help}")]
pub struct BadInput {
    pub what: String,
    pub help: String,
}

impl BadInput {
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> BadInput {
        BadInput { what: printable(&what.into()), help: printable(&help.into()) }
    }
}

/// Characters of an error. A list in a file may have millions.
const LONGEST: usize = 4000;

/// Whether a screen must not show a character as it is: it could move the cursor, turn its line's
/// direction, or not be seen.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A text that may quote a file, for a terminal: without hidden characters, and not too long.
pub fn printable(text: &str) -> String {
    let mut printable = String::new();
    for (at, c) in text.chars().enumerate() {
        match c {
            _ if at == LONGEST => {
                printable.push('…');
                break;
            }
            '\n' => printable.push(c),
            c if is_hidden(c) => printable.extend(c.escape_default()),
            c => printable.push(c),
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_quotes_does_nothing_to_the_terminal() {
        let error = BadInput::new("its name is \u{1b}[2J\r\nHere", "rename it");
        assert_eq!(error.what, "its name is \\u{1b}[2J\\r\nHere");
        let bytes = "bob\u{1b}]0;OWNED\u{7}\u{1b}[2J\r\u{9b}é";
        assert_eq!(printable(bytes), "bob\\u{1b}]0;OWNED\\u{7}\\u{1b}[2J\\r\\u{9b}é");
        let long = "x".repeat(1 << 20);
        assert_eq!(BadInput::new(&long, "").what.chars().count(), 4001);
        assert_eq!(BadInput::new("", long).help.chars().count(), 4001);
        // What turns a line round, and what nobody sees.
        for c in
            "\u{202e}\u{2066}\u{200b}\u{200f}\u{2028}\u{2029}\u{2060}\u{ad}\u{61c}\u{feff}".chars()
        {
            let shown = format!("a{}b", c.escape_unicode());
            assert_eq!(
                BadInput::new(format!("a{c}b"), format!("a{c}b")),
                BadInput { what: shown.clone(), help: shown }
            );
        }
        let seen = "é—“”… 今天 😀 e\u{301} ❤\u{fe0f} \u{a0}";
        assert_eq!(printable(seen), seen);
    }
}
