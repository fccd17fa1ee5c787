//! Text as the terminal sees it: colour codes take no room, and lines end at words.

/// What a table, a picture and their titles are moved in by.
pub(super) const INDENT: &str = "  ";

/// The treatment by [`fold`] of a word that is longer than a line.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum LongWords {
    /// Let it stick out: a broken address or path can no longer be copied.
    Keep,
    /// Cut it: in a table a neighbour's column begins there.
    Cut,
}

/// The columns `text` takes on screen: its characters without the colour codes (`ESC [ … m`).
pub fn columns(text: &str) -> usize {
    visible(text).filter(|&(_, seen)| seen).count()
}

/// `text` without colour codes.
pub fn plain(text: &str) -> String {
    visible(text).filter(|&(_, seen)| seen).map(|(c, _)| c).collect()
}

/// A part of a text that only some texts have: `part` if `has` it, and else nothing.
pub fn only_if(has: bool, part: impl Into<String>) -> String {
    if has { part.into() } else { String::new() }
}

/// What several results are: one, if all are the same, and else all of them.
pub fn in_common(results: impl IntoIterator<Item = String>) -> String {
    let mut results: Vec<String> = results.into_iter().collect();
    if results.iter().all(|result| *result == results[0]) {
        results.truncate(1);
    }
    results.join(", ")
}

/// The columns of the widest of `texts`.
pub fn widest(texts: impl IntoIterator<Item = impl AsRef<str>>) -> usize {
    let widths = texts.into_iter().map(|text| columns(text.as_ref()));
    widths.max().unwrap_or(0)
}

/// `text` followed by spaces up to `room` columns (`format!` would count the colour codes).
pub fn pad_right(text: &str, room: usize) -> String {
    text.to_owned() + &" ".repeat(room.saturating_sub(columns(text)))
}

/// `text` with spaces before it up to `room` columns.
pub fn pad_left(text: &str, room: usize) -> String {
    " ".repeat(room.saturating_sub(columns(text))) + text
}

/// Breaks `text` into lines of at most `room` columns, at spaces and where it has line ends.
/// Spaces inside a line are kept as they are. At least one line comes back.
pub(super) fn fold(text: &str, room: usize, long: LongWords) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.split('\n') {
        let mut line = String::new();
        let mut broken = false;
        for (i, word) in paragraph.trim_end().split(' ').enumerate() {
            if i == 0 || (broken && line.is_empty()) {
                // Nothing before it: the spaces at which a line was broken are dropped.
            } else if columns(&line) + 1 + columns(word) <= room {
                line.push(' ');
            } else {
                lines.push(std::mem::take(&mut line).trim_end().to_owned());
                broken = true;
            }
            line.push_str(word);
            while long == LongWords::Cut && columns(&line) > room.max(1) {
                let rest = line.split_off(byte_of_column(&line, room.max(1)));
                lines.push(std::mem::replace(&mut line, rest));
            }
        }
        lines.push(line);
    }
    close_codes(&mut lines);
    lines
}

/// Ends a colour at each line's end and begins it again on the next one: a neighbour's column comes
/// in between.
fn close_codes(lines: &mut [String]) {
    let mut open = String::new();
    for line in lines {
        let before = open.clone();
        let mut rest = &line[..];
        while let Some(at) = rest.find('\x1b') {
            let end = rest[at..].find('m').map_or(rest.len(), |end| at + end + 1);
            open = rest[at..end].to_string();
            rest = &rest[end..];
            if open == "\x1b[0m" {
                open.clear();
            }
        }
        let end = if open.is_empty() { "" } else { "\x1b[0m" };
        if !before.is_empty() || !end.is_empty() {
            *line = format!("{before}{line}{end}");
        }
    }
}

/// Every character of `text`, and whether it takes a column.
fn visible(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut in_code = false;
    text.chars().map(move |c| {
        let seen = !in_code && c != '\x1b';
        in_code = (in_code && c != 'm') || c == '\x1b';
        (c, seen)
    })
}

/// The byte at which column number `column` (counted from 0) begins.
fn byte_of_column(text: &str, column: usize) -> usize {
    let mut seen_so_far = 0;
    let mut byte = 0;
    for (c, seen) in visible(text) {
        if seen && seen_so_far == column {
            break;
        }
        seen_so_far += usize::from(seen);
        byte += c.len_utf8();
    }
    byte
}

/// A log's line in lines of at most `width` columns. Values that the log separates by bars stay
/// whole.
pub fn folded(line: &str, width: usize) -> String {
    if columns(line) <= width {
        return line.to_string();
    }
    let mut lines = Vec::new();
    let mut current = String::new();
    for piece in line.split_inclusive(if line.contains('|') { '|' } else { ' ' }) {
        let length = columns(&current);
        if !current.trim().is_empty() && length + columns(piece.trim_end()) > width {
            let indent = if piece.starts_with(' ') { "   " } else { "    " };
            lines.push(std::mem::replace(&mut current, indent.to_owned()));
        }
        current += piece;
    }
    lines.push(current);
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

/// A line with each label in the middle over its column, as far as the width allows. One that would
/// touch the label before it is left out.
pub(super) fn place_labels<'a>(
    labels: impl Iterator<Item = (usize, &'a str)>,
    width: usize,
) -> String {
    let mut line = String::new();
    for (middle, label) in labels {
        let length = columns(label);
        let start = middle.saturating_sub(length / 2).min(width.saturating_sub(length));
        if line.is_empty() || start > columns(&line) {
            line = pad_right(&line, start) + label;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_codes_take_no_room() {
        assert_eq!(columns("\x1b[36mrank 0\x1b[0m ✓"), 8);
        assert_eq!(pad_right("\x1b[1mab\x1b[0m", 4), "\x1b[1mab\x1b[0m  ");
        assert_eq!(pad_left("ab", 4), "  ab");
        assert_eq!(pad_left("abcde", 4), "abcde");
    }

    #[test]
    fn equal_results_are_said_once() {
        let said = |results: &[&str]| in_common(results.iter().map(ToString::to_string));
        assert_eq!([said(&["0", "0"]), said(&["0", "1", "0"])], ["0", "0, 1, 0"]);
    }

    #[test]
    fn lines_end_at_words() {
        let keep = |text| fold(text, 10, LongWords::Keep);
        assert_eq!(keep("one two three four"), ["one two", "three four"]);
        assert_eq!(keep("a:  b\nc"), ["a:  b", "c"]);
        assert_eq!(keep("see https://a.example/b now"), ["see", "https://a.example/b", "now"]);
        assert_eq!(keep(""), [""]);
        assert_eq!(keep("one two   three     "), ["one two", "three"]);
        assert_eq!(fold("one two   three", 7, LongWords::Keep), ["one two", "three"]);
        assert_eq!(keep("  in\n  in"), ["  in", "  in"]);
    }

    #[test]
    fn long_words_are_cut_on_request() {
        assert_eq!(fold("abcdefgh ij", 3, LongWords::Cut), ["abc", "def", "gh", "ij"]);
        assert_eq!(
            fold("\x1b[1mabcd\x1b[0m", 3, LongWords::Cut),
            ["\x1b[1mabc\x1b[0m", "\x1b[1md\x1b[0m"]
        );
        assert_eq!(fold("ab", 0, LongWords::Cut), ["a", "b"]);
    }
}
