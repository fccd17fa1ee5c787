//! A small table that stays within the width.

use super::screen::Screen;
use super::text::{LongWords, columns, fold, pad_left, pad_right};

const INDENT: &str = "  ";
const GAP: &str = "  ";

/// A table with a header: `table(&screen, &["abbr", "meaning"], &rows)`.
///
/// Columns are as wide as their widest cell. When that is too wide, the widest ones give way and
/// their cells continue on the next line. A column of numbers is set to the right. Missing cells
/// are empty, cells beyond the header are left out.
pub fn table<Cell: AsRef<str>>(screen: &Screen, header: &[&str], rows: &[Vec<Cell>]) -> String {
    let cell = |row: &[Cell], column: usize| row.get(column).map_or("", AsRef::as_ref).to_owned();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| (0..header.len()).map(|column| cell(row, column)).collect())
        .collect();
    let widths = widths(screen, header, &rows);
    let numeric: Vec<bool> = (0..header.len())
        .map(|column| is_numeric(&rows, column))
        .collect();

    let header: Vec<String> = header.iter().map(|&title| title.to_owned()).collect();
    let rule = if screen.ascii { "-" } else { "─" };
    let rule: Vec<String> = widths.iter().map(|&width| rule.repeat(width)).collect();
    let titles = lines_of(&header, &widths, &numeric);
    let mut lines: Vec<String> = titles.iter().map(|line| screen.bold(line)).collect();
    lines.push(screen.dim(format!("{INDENT}{}", rule.join(GAP))));
    lines.extend(rows.iter().flat_map(|row| lines_of(row, &widths, &numeric)));
    lines.join("\n")
}

/// Natural widths, then the widest column loses one until the line fits (or nothing is left).
fn widths(screen: &Screen, header: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let widest_line = |text: &str| text.split('\n').map(columns).max().unwrap_or(0);
    let mut widths: Vec<usize> = header
        .iter()
        .map(|title| widest_line(title).max(1))
        .collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(widest_line(cell));
        }
    }
    let room = screen
        .width
        .saturating_sub(INDENT.len() + GAP.len() * header.len().saturating_sub(1));
    while widths.iter().sum::<usize>() > room {
        match widths.iter_mut().max() {
            Some(widest) if *widest > 1 => *widest -= 1,
            _ => break,
        }
    }
    widths
}

fn is_numeric(rows: &[Vec<String>], column: usize) -> bool {
    let number = |cell: &String| {
        cell.trim_end_matches('%')
            .replace(',', "")
            .parse::<f64>()
            .is_ok()
    };
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
        let parts = cells
            .iter()
            .zip(widths)
            .zip(numeric)
            .map(|((cell, &width), &numeric)| {
                let text = cell.get(i).map_or("", String::as_str);
                if numeric {
                    pad_left(text, width)
                } else {
                    pad_right(text, width)
                }
            });
        format!("{INDENT}{}", parts.collect::<Vec<_>>().join(GAP))
            .trim_end()
            .to_owned()
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legend() {
        let screen = Screen {
            width: 34,
            ascii: true,
            ..Screen::plain()
        };
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
                    let screen = Screen {
                        width,
                        colour: true,
                        ascii: false,
                    };
                    let drawn = table(
                        &screen,
                        &["first", "second", a],
                        &[vec![a, b, b], vec![b, "1"]],
                    );
                    for line in drawn.lines() {
                        assert!(columns(line) <= width, "{width}: {line}");
                    }
                }
            }
        }
    }

    #[test]
    fn nothing_in_it() {
        assert_eq!(table::<&str>(&Screen::plain(), &["a"], &[]), "  a\n  ─");
    }
}
