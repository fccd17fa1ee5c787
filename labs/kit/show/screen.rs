//! The screen: its width, its colours, and the line forms that all labs share.

use super::colour::{self, Hue};
use super::terminal::{DEFAULT_WIDTH, asked_width, is_looked_at, width_of_stderr, width_of_stdout};
use super::text::{LongWords, columns, fold, pad_left, pad_right};
use super::{above, progress};
use shardlab::error::is_hidden;
use std::fmt::Display;
use std::io::{self, Write};

/// Whether colours are asked for where there is no terminal: the convention of
/// <https://bixense.com/clicolors>.
fn is_forced(no_color: &str, force: &str) -> bool {
    no_color.is_empty() && !force.is_empty() && force != "0"
}

/// Text of a labelled line begins after two spaces, a label of eight and one more space.
const LABEL_WIDTH: usize = 8;

/// The terminal's abilities. Everything in this room takes it by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns a line may take.
    pub width: usize,
    /// Whether colour codes may be written.
    pub colour: bool,
    /// Whether pictures must do with ASCII characters (`--ascii`).
    pub ascii: bool,
}

impl Screen {
    /// Looks at stdout and the environment (`NO_COLOR`, `CLICOLOR_FORCE`, `TERM`, `COLUMNS`).
    pub fn detect(ascii: bool) -> Screen {
        let width = asked_width().or_else(width_of_stdout);
        Screen::look(is_looked_at(&io::stdout()), width, ascii)
    }

    /// Looks at stderr instead; none where that is no terminal, and nobody asks for one's look.
    pub(super) fn of_stderr() -> Option<Screen> {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let is_asked_for = is_forced(&variable("NO_COLOR"), &variable("CLICOLOR_FORCE"));
        if !is_looked_at(&io::stderr()) && !is_asked_for {
            return None;
        }
        Some(Screen::look(true, asked_width().or_else(width_of_stderr), false))
    }

    fn look(terminal: bool, width: Option<usize>, ascii: bool) -> Screen {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let screen =
            Screen::decide(terminal, &variable("NO_COLOR"), &variable("TERM"), width, ascii);
        Screen {
            colour: screen.colour || is_forced(&variable("NO_COLOR"), &variable("CLICOLOR_FORCE")),
            ..screen
        }
    }

    /// 80 columns without colour: what a redirected run and every test sees.
    pub fn plain() -> Screen {
        Screen { width: DEFAULT_WIDTH, colour: false, ascii: false }
    }

    /// 80 columns without colour, in ASCII characters alone.
    #[cfg(test)]
    pub(super) fn plain_ascii() -> Screen {
        Screen { ascii: true, ..Screen::plain() }
    }

    /// 80 columns with colour: a notebook shows a cell's text in the colours of a terminal.
    pub fn notebook() -> Screen {
        Screen { colour: true, ..Screen::plain() }
    }

    fn decide(
        terminal: bool,
        no_color: &str,
        term: &str,
        width: Option<usize>,
        ascii: bool,
    ) -> Screen {
        Screen {
            // Not a terminal means a file or a pipe: 80 columns everywhere, so that two runs can be
            // compared.
            width: if terminal {
                width.unwrap_or(DEFAULT_WIDTH).clamp(60, 100)
            } else {
                DEFAULT_WIDTH
            },
            colour: terminal && no_color.is_empty() && term != "dumb",
            ascii,
        }
    }

    /// Prints one line (or several) to stdout.
    ///
    /// When stdout cannot be written the process ends here, without a panic: `lab03 | head` is an
    /// ordinary thing to do and no error of the lab.
    pub fn say(&self, text: impl Display) {
        let text = text.to_string();
        above::count(&text);
        let written = progress::erased(|| writeln!(io::stdout().lock(), "{text}"));
        if let Err(error) = written {
            if error.kind() != io::ErrorKind::BrokenPipe {
                // Nothing is left to be done if stderr is closed too.
                let _ = writeln!(io::stderr(), "error: stdout cannot be written: {error}");
            }
            // SAFETY: it ends the process at once. `std::process::exit` would run what is
            // registered for a rank that ends the process by mistake, and this is no mistake.
            unsafe { libc::_exit(exit_code(&error)) }
        }
    }

    /// `text` in the colour of rank `rank`: the same rank has the same colour on every screen.
    pub fn rank(&self, rank: usize, text: impl Display) -> String {
        self.hue(colour::of_rank(rank), text)
    }

    /// `text` in the colour of a curve or an algorithm, which is no rank's.
    pub(super) fn curve(&self, look: usize, text: impl Display) -> String {
        self.hue(colour::of_curve(look), text)
    }

    /// `text` in a colour.
    pub(super) fn hue(&self, hue: Hue, text: impl Display) -> String {
        self.paint(hue.terminal, text)
    }

    /// `text` in the screen's background colour on a colour.
    pub(super) fn on_hue(&self, hue: Hue, text: impl Display) -> String {
        self.paint(&format!("7;{}", hue.terminal), text)
    }

    /// The name of rank `rank`, in its colour.
    pub fn name(&self, rank: usize) -> String {
        self.rank(rank, format!("rank {rank}"))
    }

    /// A sign, or the one in its place where pictures must do with ASCII characters.
    pub fn either<T>(&self, sign: T, ascii: T) -> T {
        if self.ascii { ascii } else { sign }
    }

    /// `text` in bold.
    pub fn bold(&self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// `text` in the background: units, hints, details.
    pub fn dim(&self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// `text` as good news.
    pub fn good(&self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// `text` as the best of several, which a mark or a word also says.
    pub fn best(&self, text: impl Display) -> String {
        self.paint("1;32", text)
    }

    /// `text` as bad news.
    pub fn bad(&self, text: impl Display) -> String {
        self.paint("1;31", text)
    }

    /// The mark of a check that holds: `✓`, or `ok`.
    pub fn tick(&self) -> String {
        self.good(if self.ascii { "ok" } else { "✓" })
    }

    /// The mark of a check that does not hold: `✗`, or `FAILED`.
    pub fn cross(&self) -> String {
        self.bad(if self.ascii { "FAILED" } else { "✗" })
    }

    /// One of these marks.
    pub fn verdict(&self, holds: bool) -> String {
        if holds { self.tick() } else { self.cross() }
    }

    /// An amount that fits, with a tick; or one that does not, all of it as bad news.
    pub fn fits(&self, fits: bool, amount: impl Display) -> String {
        if fits {
            format!("{amount} {}", self.tick())
        } else {
            self.bad(format!("{amount} {}", self.either("✗", "FAILED")))
        }
    }

    /// A column of `rows` with these `values`, of which the least is the best and the most the
    /// worst: both in their colours, and so are those within half a percent of them, unless that is
    /// all. NaN is neither.
    pub fn least_is_best(&self, rows: &mut [Vec<String>], column: usize, values: &[f64]) {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        for (value, row) in values.iter().zip(rows) {
            let cell = &mut row[column];
            if 1.005 * least < most && *value <= 1.005 * least {
                *cell = self.best(&*cell);
            } else if 1.005 * least < most && *value >= most / 1.005 {
                *cell = self.bad(&*cell);
            }
        }
    }

    /// The sign between items on one line: ` · `, or ` | `.
    pub fn separator(&self) -> &'static str {
        if self.ascii { " | " } else { " · " }
    }

    /// A duration, as [`seconds`](super::seconds) writes it: `12.3 µs`, or `12.3 us`.
    pub fn seconds(&self, seconds: f64) -> String {
        self.micro(shardlab::units::seconds(seconds))
    }

    /// A text with amounts, in which `µ` is `u` where pictures must do with ASCII characters.
    pub(super) fn micro(&self, text: String) -> String {
        if self.ascii { text.replace('µ', "u") } else { text }
    }

    /// The first line of a lab: its name on the left, a remark at the right end of the line.
    pub fn heading(&self, left: &str, right: &str) -> String {
        let left_lines = fold(left, self.width, LongWords::Keep);
        let gap = self.width.saturating_sub(columns(left) + columns(right));
        let bold = left_lines.iter().map(|line| self.bold(line)).collect::<Vec<_>>().join("\n");
        if right.is_empty() {
            bold
        } else if left_lines.len() == 1 && gap >= 2 {
            format!("{bold}{}{}", " ".repeat(gap), self.dim(right))
        } else {
            format!("{bold}\n{}", pad_left(&self.dim(right), self.width))
        }
    }

    /// A heading within a screen: `text` in bold, in lines of at most the screen's width, each
    /// begun with `indent` spaces.
    pub fn title(&self, text: &str, indent: usize) -> String {
        let lines = fold(text, self.width.saturating_sub(indent), LongWords::Keep);
        let line = |line: &String| format!("{}{}", " ".repeat(indent), self.bold(line));
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// `text` in lines of at most the screen's width, each begun with `indent` spaces.
    /// Only a single word longer than a line sticks out: a cut address cannot be copied.
    pub fn wrap(&self, text: &str, indent: usize) -> String {
        self.hang(&" ".repeat(indent), text)
    }

    /// A model's text, in lines of at most the screen's width. A model can learn control
    /// characters, which could move the cursor, and others that turn a line round: they are shown
    /// as a dot.
    pub fn quote(&self, text: &str, indent: usize) -> String {
        let shown = |c: char| match c {
            '\n' => '\n',
            '\t' => ' ',
            c if is_hidden(c) => self.either('·', '.'),
            c if self.ascii && !c.is_ascii() => '?',
            c => c,
        };
        let text: String = text.chars().map(shown).collect();
        let lines = fold(&text, self.width.saturating_sub(indent), LongWords::Cut);
        lines
            .iter()
            .map(|line| format!("{}{line}", " ".repeat(indent)).trim_end().to_string())
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// A labelled line, `  ranks    2 threads of this process`; what does not fit continues below
    /// the text.
    pub fn row(&self, label: &str, text: &str) -> String {
        self.hang(&format!("  {} ", pad_right(label, LABEL_WIDTH)), text)
    }

    /// A labelled line after a mark, `  ✓ linker   cc links a program`; what does not fit continues
    /// below the text.
    pub fn mark(&self, mark: &str, label: &str, text: &str) -> String {
        let mark = pad_right(mark, self.either(1, "FAILED".len()));
        self.hang(&format!("  {mark} {} ", pad_right(label, LABEL_WIDTH)), text)
    }

    /// One check and how it went: `  check    what ……… result ✓`, the marks in one column.
    /// A long check continues on further lines, the result last.
    pub fn check(&self, ok: bool, what: &str, result: &str) -> String {
        let mark = self.verdict(ok);
        let end = if result.is_empty() {
            mark
        } else {
            format!("{result} {mark}")
        };
        let start = self.row("check", what);
        let indent = LABEL_WIDTH + 3;
        let last_line = start.lines().last().map_or(0, columns);
        if let Some(dots) = self.filler(last_line + 1, &end) {
            format!("{start} {dots} {end}")
        } else if let Some(dots) = self.filler(indent, &end) {
            format!("{start}\n{}{dots} {end}", " ".repeat(indent))
        } else {
            format!("{start}\n{}", self.wrap(&end, indent))
        }
    }

    /// The dots between column `from` and a text that ends at the right edge, if there is room.
    fn filler(&self, from: usize, end: &str) -> Option<String> {
        let length =
            self.width.checked_sub(from + 1 + columns(end)).filter(|&length| length >= 2)?;
        Some(self.dim(if self.ascii { "." } else { "…" }.repeat(length)))
    }

    /// Folds `text` after `prefix`; the following lines begin where the text began.
    pub(super) fn hang(&self, prefix: &str, text: &str) -> String {
        let indent = columns(prefix);
        let lines = fold(text, self.width.saturating_sub(indent), LongWords::Keep);
        let hanging = format!("\n{}", " ".repeat(indent));
        // A no-break space has done its work once the lines are folded.
        let text = lines.join(&hanging).replace('\u{a0}', " ");
        // A duration in a text that was made for no screen, as a question's.
        let text = if self.ascii { text.replace(" µs", " us") } else { text };
        format!("{prefix}{text}")
    }

    fn paint(&self, code: &str, text: impl Display) -> String {
        let text = text.to_string();
        if self.colour && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text
        }
    }
}

/// The process's exit code when stdout cannot be written.
///
/// Rust ignores SIGPIPE, so a closed pipe arrives as an error instead of ending the process. We
/// end it with the code a shell shows for that signal: 128 + 13. Anything else (a full disk) loses
/// output, which is a failure.
fn exit_code(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::BrokenPipe => 141,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colourful() -> Screen {
        Screen { colour: true, ..Screen::plain() }
    }

    #[test]
    fn a_quote_stays_within_the_width() {
        let text = format!("Speak:\n\n{} end", "x".repeat(100));
        let lines: Vec<String> =
            Screen::plain().quote(&text, 4).lines().map(String::from).collect();
        assert_eq!(
            lines,
            [
                "    Speak:",
                "",
                &format!("    {}", "x".repeat(76)),
                &format!("    {} end", "x".repeat(24))
            ]
        );
    }

    #[test]
    fn a_quote_cannot_move_the_cursor() {
        assert_eq!(Screen::plain().quote("a\r\x1b[2Jb\tcé\n", 0), "a··[2Jb cé\n");
        assert_eq!(Screen::plain_ascii().quote("a\rcé", 0), "a.c?");
    }

    #[test]
    fn colour_needs_a_terminal_that_wants_it() {
        assert!(Screen::decide(true, "", "xterm", None, false).colour);
        assert!(!Screen::decide(false, "", "xterm", None, false).colour);
        assert!(!Screen::decide(true, "1", "xterm", None, false).colour);
        assert!(!Screen::decide(true, "", "dumb", None, false).colour);
        assert!(is_forced("", "1") && !is_forced("", "0") && !is_forced("", ""));
        assert!(!is_forced("1", "1"));
    }

    #[test]
    fn width_is_the_terminals_within_reason() {
        let width = |terminal, width| Screen::decide(terminal, "", "", width, false).width;
        assert_eq!(width(true, None), 80);
        assert_eq!(width(true, Some(72)), 72);
        assert_eq!(width(true, Some(20)), 60);
        assert_eq!(width(true, Some(300)), 100);
        assert_eq!(width(false, Some(72)), 80);
    }

    #[test]
    fn a_rank_keeps_its_colour() {
        let screen = colourful();
        assert_eq!(screen.rank(0, "rank 0"), "\x1b[36mrank 0\x1b[0m");
        assert_eq!(screen.rank(1, "x"), screen.rank(9, "x"));
        for other in 1..6 {
            assert_ne!(screen.rank(0, "x"), screen.rank(other, "x"));
        }
        assert_eq!(Screen::plain().rank(0, "rank 0"), "rank 0");
    }

    #[test]
    fn a_heading_fills_the_line() {
        let screen = Screen::plain();
        let heading = screen.heading("lab03 · One model, many ranks", "about 3 minutes");
        assert!(heading.starts_with("lab03 · One model, many ranks   "));
        assert!(heading.ends_with("   about 3 minutes"));
        assert_eq!(columns(&heading), 80);
        assert_eq!(columns(&colourful().heading("left", "right")), 80);
        assert_eq!(screen.heading("left", ""), "left");
        let narrow = Screen { width: 20, ..screen };
        assert_eq!(
            narrow.heading("lab03 One model", "3 minutes"),
            "lab03 One model\n           3 minutes"
        );
    }

    #[test]
    fn rows_hang() {
        let screen = Screen { width: 34, ..Screen::plain() };
        assert_eq!(
            screen.row("ranks", "2 threads of this process (nothing installed)"),
            "  ranks    2 threads of this\n           process (nothing\n           installed)"
        );
        assert_eq!(screen.row("a long label", "x"), "  a long label x");
        assert_eq!(screen.wrap("a b", 4), "    a b");
    }

    #[test]
    fn checks_end_in_one_column() {
        let screen = Screen { width: 40, ..Screen::plain() };
        assert_eq!(
            screen.check(true, "the loss fell", "4.2 1.9"),
            "  check    the loss fell …………… 4.2 1.9 ✓"
        );
        assert_eq!(
            screen.check(false, "the loss fell", ""),
            "  check    the loss fell ………………………………… ✗"
        );
        let ascii = Screen { ascii: true, ..screen.clone() };
        assert_eq!(
            ascii.check(true, "the loss fell", "4 2"),
            "  check    the loss fell ........ 4 2 ok"
        );
        assert_eq!(
            ascii.check(false, "both ranks hold the same model", "8c1f = 77a0"),
            "  check    both ranks hold the same\n           model .... 8c1f = 77a0 FAILED"
        );
        assert_eq!(
            ascii.check(true, "the loss fell at last", "4.19 -> 1.98"),
            "  check    the loss fell at last\n           ............. 4.19 -> 1.98 ok"
        );
        assert_eq!(
            ascii.check(true, "x", "a result that takes two lines"),
            "  check    x\n           a result that takes two lines\n           ok"
        );
        let coloured = Screen { colour: true, ..screen };
        assert_eq!(columns(&coloured.check(true, "the loss fell", "4.2 1.9")), 40);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        assert_eq!(exit_code(&io::Error::from(io::ErrorKind::BrokenPipe)), 141);
        assert_eq!(exit_code(&io::Error::from(io::ErrorKind::StorageFull)), 1);
    }
}
