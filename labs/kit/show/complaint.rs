//! Errors and notices on stderr, folded into readable lines.

use super::progress;
use super::screen::Screen;
use shardlab::notice;

/// Prints an error or a notice to stderr. On a terminal, or where `CLICOLOR_FORCE` asks for a
/// terminal's look, its lines end at words, and go on below where their text began. In a file or a
/// pipe, where one searches, each stays one line.
pub fn complain_folded(text: &str) {
    let text = Screen::of_stderr().map_or(text.to_owned(), |screen| in_lines(&screen, text));
    progress::erased(|| notice::print(&text));
}

/// A text in lines that end at words.
pub(crate) fn in_lines(screen: &Screen, text: &str) -> String {
    let line = |line: &str| {
        let (label, text) = line.split_at(label(line));
        screen.hang(label, text)
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The bytes of a line before its text: spaces, and `error: `, `help: ` or `rank 12  ` after them.
fn label(line: &str) -> usize {
    let spaces = line.len() - line.trim_start_matches(' ').len();
    let text = &line[spaces..];
    let word = text.find(' ').filter(|&end| text[..end].ends_with(':'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let rank = text
        .find("  ")
        .filter(|&end| text[..end].strip_prefix("rank ").is_some_and(is_number));
    // All the spaces between the label and the text belong to it.
    let end = |label: usize| line.len() - text[label..].trim_start_matches(' ').len();
    word.or(rank).map_or(spaces, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_on_where_their_text_began() {
        let screen = Screen { width: 34, ..Screen::plain() };
        let text = "error: the ranks are in different calls:\n  rank 0  waits in barrier, its call 7\n  rank 12  ended\n\
                    help: every rank of a group must\n      make the same calls in the same order\n\nNo label: 1  2\nrank 1 is late: 1  2";
        let lines = [
            "error: the ranks are in different",
            "       calls:",
            "  rank 0  waits in barrier, its",
            "          call 7",
            "  rank 12  ended",
            "help: every rank of a group must",
            "      make the same calls in the",
            "      same order",
            "",
            "No label: 1  2",
            "rank 1 is late: 1  2",
        ];
        assert_eq!(in_lines(&screen, text).lines().collect::<Vec<_>>(), lines);
    }
}
