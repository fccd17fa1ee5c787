//! The data of each rank: one row per rank, one cell per part.

use kit::show::{Screen, columns, pad_left};

const INDENT: &str = "  ";

/// One element of a rank's data. Marked neighbours share one pair of brackets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// May contain colour codes.
    pub text: String,
    pub marked: bool,
}

/// All ranks' data before and after: two grids side by side, with one row per rank.
///
/// If there is little room, cells stand closer; if that is not enough, ranks are named on the left
/// alone.
pub fn before_and_after(screen: &Screen, before: &[Vec<Cell>], after: &[Vec<Cell>]) -> String {
    let width = before
        .iter()
        .chain(after)
        .flatten()
        .map(|cell| columns(&cell.text))
        .max()
        .unwrap_or(1);
    let arrow = if screen.ascii { "->" } else { "→" };
    let lines = |gap: &str, names: bool| -> Vec<String> {
        let middle = (before.len().max(1) - 1) / 2;
        let line = |(rank, (before, after)): (usize, (&Vec<Cell>, &Vec<Cell>))| {
            let arrow = pad_left(if rank == middle { arrow } else { "" }, columns(arrow));
            let before = row(screen, before, width, gap);
            let after = row(screen, after, width, gap);
            let there = if names { name(screen, rank) } else { bar(screen) };
            format!("{INDENT}{}{before}  {arrow}  {there}{after}", name(screen, rank))
        };
        before
            .iter()
            .zip(after)
            .enumerate()
            .map(line)
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    let fits = |lines: &Vec<String>| lines.iter().all(|line| columns(line) <= screen.width);
    let forms = [(" ", true), ("", true), ("", false)].map(|(gap, names)| lines(gap, names));
    forms.iter().find(|lines| fits(lines)).unwrap_or(&forms[2]).join("\n")
}

fn name(screen: &Screen, rank: usize) -> String {
    format!("{} {}", screen.rank(rank, format!("rank {rank}")), bar(screen))
}

fn bar(screen: &Screen) -> String {
    screen.dim(if screen.ascii { "|" } else { "│" })
}

/// Cells of `width` columns, between them spaces, or brackets where marked ones begin and end, and
/// there also `gap`.
fn row(screen: &Screen, cells: &[Cell], width: usize, gap: &str) -> String {
    let mut line = String::new();
    let mut inside = false;
    for (i, cell) in cells.iter().enumerate() {
        let gap = if i == 0 { "" } else { gap };
        line += &match (inside, cell.marked) {
            (false, true) => format!("{gap}{}", screen.bold("[")),
            (true, false) => format!("{}{gap}", screen.bold("]")),
            _ => format!(" {gap}"),
        };
        line += &pad_left(&cell.text, width);
        inside = cell.marked;
    }
    line + &if inside { screen.bold("]") } else { " ".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Cell> {
        text.split(' ')
            .map(|text| Cell { text: text.replace('*', ""), marked: text.contains('*') })
            .collect()
    }

    #[test]
    fn marked_neighbours_share_their_brackets() {
        let before = [cells("1* 2 3* 4*"), cells("10 20 30 40")];
        let after = [cells("1 2 3 4"), cells("11* 20 33* 44*")];
        assert_eq!(
            before_and_after(&Screen::plain(), &before, &after),
            "  rank 0 │[ 1]  2 [ 3   4]  →  rank 0 │  1   2   3   4\n\
             \x20 rank 1 │ 10  20  30  40      rank 1 │[11] 20 [33  44]"
        );
        let ascii = Screen { ascii: true, ..Screen::plain() };
        let text = before_and_after(&ascii, &before, &after);
        assert!(
            text.is_ascii() && text.starts_with("  rank 0 |[ 1]  2 [ 3   4]  ->  rank 0 |"),
            "{text}"
        );
    }

    #[test]
    fn names_give_way_to_the_width() {
        for (cell, names) in [("1234", 8), ("12345", 4)] {
            let rows = vec![cells(&[cell; 5].join("* ")); 4];
            let text = before_and_after(&Screen::plain(), &rows, &rows);
            assert_eq!(text.matches("rank").count(), names, "{text}");
            let coloured =
                before_and_after(&Screen { colour: true, ..Screen::plain() }, &rows, &rows);
            assert!(coloured.lines().chain(text.lines()).all(|line| columns(line) <= 80), "{text}");
        }
        assert_eq!(before_and_after(&Screen::plain(), &[], &[]), "");
    }
}
