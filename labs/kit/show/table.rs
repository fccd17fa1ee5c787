//! A small table that stays within the width.

use super::screen::Screen;
use super::text::{INDENT, LongWords, columns, fold, pad_left, pad_right, plain};

const GAP: &str = "  ";

/// A word that is longer may be cut where there is no room for it: a path or an address.
const LONGEST: usize = 20;

/// A table with a header: `table(&screen, &["abbr", "meaning"], &rows)`.
///
/// Columns are as wide as their widest cell. When that is too wide, the widest ones give way and
/// their cells continue on the next line, but no number and no word is cut. Where even that has no
/// room, each row becomes a paragraph. A column of numbers is set to the right. Missing cells
/// are empty, cells beyond the header are left out.
pub fn table<Row: AsRef<[Cell]>, Cell: AsRef<str>>(
    screen: &Screen,
    header: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = Row>,
) -> String {
    ranked(screen, header, rows, |_| false)
}

/// A table in which some rows are the best: they have a `*` in the margin, and the colour of the
/// best. Say below or above it what the `*` means.
pub fn ranked<Row: AsRef<[Cell]>, Cell: AsRef<str>>(
    screen: &Screen,
    header: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = Row>,
    is_best: impl Fn(usize) -> bool,
) -> String {
    let header: Vec<&str> = header.iter().map(AsRef::as_ref).collect();
    let cell = |row: &[Cell], column: usize| row.get(column).map_or("", AsRef::as_ref).to_owned();
    let row = |row: Row| (0..header.len()).map(|column| cell(row.as_ref(), column)).collect();
    let rows = rows.into_iter().map(row).collect();
    drawn(screen, &header, rows, &is_best)
}

/// [`ranked`], compiled once for all kinds of rows. Each row has as many cells as the header.
fn drawn(
    screen: &Screen,
    header: &[&str],
    rows: Vec<Vec<String>>,
    is_best: &dyn Fn(usize) -> bool,
) -> String {
    let with_units = |row: Vec<String>| row.iter().map(|cell| with_units(cell)).collect();
    let rows: Vec<Vec<String>> = rows.into_iter().map(with_units).collect();
    let Some(widths) = widths(screen, header, &rows) else {
        return paragraphs(screen, header, &rows, is_best);
    };
    let numeric: Vec<bool> = (0..header.len()).map(|column| is_numeric(&rows, column)).collect();

    let header: Vec<String> = header.iter().map(|&title| title.to_owned()).collect();
    let rule = if screen.ascii { "-" } else { "─" };
    let rule: Vec<String> = widths.iter().map(|&width| rule.repeat(width)).collect();
    let titles = lines_of(&header, &widths, &numeric);
    let mut lines: Vec<String> = titles.iter().map(|line| screen.bold(line)).collect();
    lines.push(screen.dim(format!("{INDENT}{}", rule.join(GAP))));
    for (i, row) in rows.iter().enumerate() {
        lines.extend(marked(screen, lines_of(row, &widths, &numeric), is_best(i)));
    }
    lines.join("\n")
}

/// The lines of one row, with a mark if it is the best.
fn marked(screen: &Screen, mut lines: Vec<String>, is_best: bool) -> Vec<String> {
    if is_best {
        if let Some(first) = lines.first_mut()
            && let Some(rest) = first.strip_prefix(INDENT)
        {
            *first = format!("* {rest}");
        }
        for line in &mut lines {
            *line = screen.best(&*line);
        }
    }
    lines
}

/// Natural widths, then the widest column loses one until the line fits. A column keeps the width
/// of its longest word: none comes back if that is too wide.
fn widths(screen: &Screen, header: &[&str], rows: &[Vec<String>]) -> Option<Vec<usize>> {
    let cells = |column: usize| {
        let cells = rows.iter().map(move |row| &*row[column]);
        std::iter::once(header[column]).chain(cells)
    };
    let widest_line = |text: &str| text.split('\n').map(columns).max().unwrap_or(0);
    let all = |of: fn(&str) -> usize| -> Vec<usize> {
        let widest = |column| cells(column).map(of).max().unwrap_or(0).max(1);
        (0..header.len()).map(widest).collect()
    };
    let mut widths = all(widest_line);
    let least = all(longest_word);
    let room = screen
        .width
        .saturating_sub(INDENT.len() + GAP.len() * header.len().saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        let wider = widths.iter_mut().zip(&least);
        let widest = wider
            .filter(|(width, least)| **width > **least)
            .max_by_key(|(width, _)| **width)?;
        *widest.0 -= 1;
    }
    Some(widths)
}

/// The columns of the longest word of a cell.
fn longest_word(cell: &str) -> usize {
    let words = cell.split(['\n', ' ']).map(columns);
    words.max().unwrap_or(0).min(LONGEST)
}

/// A cell in which a number and its unit or its mark are one word.
fn with_units(cell: &str) -> String {
    const UNITS: [&str; 18] = [
        "B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "ns", "µs", "us", "ms", "s",
        "min", "h", "d",
    ];
    const MARKS: [&str; 4] = ["✓", "✗", "ok", "FAILED"];
    let mut text = String::new();
    let mut first = true;
    for word in cell.split(' ') {
        let seen = plain(word);
        let is_unit =
            plain(&text).ends_with(|c: char| c.is_ascii_digit()) && UNITS.contains(&&*seen);
        if is_unit || (!text.is_empty() && MARKS.contains(&&*seen)) {
            text.push('\u{a0}');
        } else if !std::mem::take(&mut first) {
            text.push(' ');
        }
        text += word;
    }
    text
}

/// Each row as a paragraph that begins with its first cell, for a screen that is too narrow for the
/// columns.
fn paragraphs(
    screen: &Screen,
    header: &[&str],
    rows: &[Vec<String>],
    is_best: impl Fn(usize) -> bool,
) -> String {
    const FOLLOWING: &str = "    ";
    let between = format!("\u{a0}{} ", screen.separator().trim());
    let mut lines = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let name = if plain(&row[0]).starts_with(|c: char| c.is_ascii_digit()) {
            format!("{} {}", header[0], row[0])
        } else {
            row[0].clone()
        };
        let named = header.iter().zip(row).skip(1);
        let named = named.filter(|(_, cell)| !cell.is_empty());
        let parts: Vec<String> = named
            .map(|(title, cell)| {
                let title = title.replace("-\n", "-").replace('\n', " ");
                let part = format!("{title} {cell}").trim().to_string();
                // A short part stays on one line.
                if columns(&part) <= LONGEST + 4 {
                    part.replace(' ', "\u{a0}")
                } else {
                    part
                }
            })
            .collect();
        let name = if is_best(n) { name } else { screen.bold(name) };
        let text = format!("{name}  {}", parts.join(&between));
        let room = screen.width.saturating_sub(FOLLOWING.len());
        let folded = fold(&text, room, LongWords::Cut);
        let paragraph = folded.iter().enumerate().map(|(i, line)| {
            let indent = if i == 0 { INDENT } else { FOLLOWING };
            format!("{indent}{}", line.replace('\u{a0}', " "))
        });
        lines.extend(marked(screen, paragraph.collect(), is_best(n)));
    }
    let why = format!("(this screen is too narrow for the {} columns of a table)", header.len());
    lines.push(screen.dim(screen.wrap(&why, INDENT.len())));
    lines.join("\n")
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let number =
        |cell: &String| plain(cell).trim_end_matches('%').replace(',', "").parse::<f64>().is_ok();
    let mut cells = rows
        .iter()
        .filter_map(|row| row.get(column))
        .filter(|cell| !cell.is_empty())
        .peekable();
    cells.peek().is_some() && cells.all(number)
}

/// One row of the table, as many lines as its highest cell needs.
fn lines_of(row: &[String], widths: &[usize], numeric: &[bool]) -> Vec<String> {
    let cells: Vec<Vec<String>> = row
        .iter()
        .zip(widths)
        .map(|(cell, &width)| fold(cell, width, LongWords::Cut))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let line = |i: usize| {
        let parts = cells.iter().zip(widths).zip(numeric).map(|((cell, &width), &numeric)| {
            let text = cell.get(i).map_or("", String::as_str);
            if numeric {
                pad_left(text, width)
            } else {
                pad_right(text, width)
            }
        });
        format!("{INDENT}{}", parts.collect::<Vec<_>>().join(GAP))
            .trim_end()
            .replace('\u{a0}', " ")
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend() {
        let screen = Screen { width: 34, ascii: true, ..Screen::plain() };
        let rows = [
            vec!["dt", "seconds of the step"],
            vec!["mfu", "model flops utilisation, of the measured peak"],
        ];
        assert_eq!(
            table(&screen, &["abbr", "meaning"], &rows),
            "  abbr  meaning\n\
             \x20 ----  --------------------------\n\
             \x20 dt    seconds of the step\n\
             \x20 mfu   model flops utilisation,\n\
             \x20       of the measured peak"
        );
    }

    #[test]
    fn numbers_stand_right() {
        let rows = [vec!["1", "1,234", "31%"], vec!["16", "7", ""]];
        assert_eq!(
            table(&Screen::plain(), &["ranks", "bytes", "of"], &rows),
            "  ranks  bytes   of\n  ─────  ─────  ───\n      1  1,234  31%\n     16      7"
        );
    }

    #[test]
    fn never_wider_than_the_screen() {
        let words = [
            "",
            "a",
            "parameters",
            "https://example.com/a/very/long/path/without/any/space",
            "one two three four five six",
        ];
        for width in [40, 60, 80] {
            for a in words {
                for b in words {
                    let screen = Screen { width, colour: true, ascii: false };
                    let drawn =
                        table(&screen, &["first", "second", a], &[vec![a, b, b], vec![b, "1"]]);
                    for line in drawn.lines() {
                        assert!(columns(line) <= width, "{width}: {line}");
                    }
                }
            }
        }
    }

    fn narrow(width: usize) -> Screen {
        Screen { width, ..Screen::plain() }
    }

    /// The table that broke "531,233" and "65.9 GB" on a projector.
    #[test]
    fn a_row_that_is_too_wide_becomes_a_paragraph_and_no_number_is_cut() {
        let header = ["dp", "tp", "recompute", "memory", "step", "tokens/s"];
        let rows = [
            vec!["64", "8", "selective", "65.9 GB", "7.90 s", "531,233"],
            vec!["16", "4", "selective", "69.0 GB", "8.21 s", "510,568"],
        ];
        let wide = "  dp  tp  recompute  memory   step    tokens/s\n  ──  ──  ─────────  ───────  ──────  ────────
  64   8  selective  65.9 GB  7.90 s   531,233\n  16   4  selective  69.0 GB  8.21 s   510,568";
        assert_eq!(table(&narrow(46), &header, &rows), wide);
        let paragraphs = "  dp 64  tp 8 · recompute selective ·
    memory 65.9 GB · step 7.90 s ·
    tokens/s 531,233
  dp 16  tp 4 · recompute selective ·
    memory 69.0 GB · step 8.21 s ·
    tokens/s 510,568
  (this screen is too narrow for the 6
  columns of a table)";
        assert_eq!(table(&narrow(42), &header, &rows), paragraphs);
    }

    #[test]
    fn words_give_way_and_numbers_with_their_units_do_not() {
        let rows = [vec!["parameters and moments", "███ 2.40 MB", "48.6 GB ✗ (3%)"]];
        let expected = "  what        a rank   needs
  ──────────  ───────  ─────────
  parameters  ███      48.6 GB ✗
  and         2.40 MB  (3%)
  moments";
        assert_eq!(table(&narrow(32), &["what", "a rank", "needs"], &rows), expected);
    }

    #[test]
    fn the_best_rows_have_a_mark_with_and_without_colour() {
        let rows = [vec!["8", "7.90 s"], vec!["4", "8.21 s"]];
        let draw = |screen: &Screen| ranked(screen, &["tp", "step"], &rows, |row| row == 0);
        let expected = "  tp  step\n  ──  ──────\n*  8  7.90 s\n   4  8.21 s";
        assert_eq!(draw(&Screen::plain()), expected);
        let colour = Screen { colour: true, ..Screen::plain() };
        assert_eq!(plain(&draw(&colour)), expected);
        assert!(draw(&colour).contains("\x1b[1;32m*  8  7.90 s\x1b[0m"));
        assert!(draw(&narrow(10)).starts_with("* tp 8"), "{}", draw(&narrow(10)));
    }

    #[test]
    fn colour_in_a_cell_changes_no_column() {
        let colour = Screen { colour: true, ..Screen::plain() };
        let draw = |screen: &Screen| {
            let rows = [vec![screen.best("12"), screen.bad("65.9 GB ✗")], vec!["7".into()]];
            table(screen, &["n", "bytes"], &rows)
        };
        assert_eq!(plain(&draw(&colour)), draw(&Screen::plain()));
    }

    #[test]
    fn nothing_in_it() {
        assert_eq!(table::<[&str; 1], _>(&Screen::plain(), &["a"], []), "  a\n  ─");
    }
}
