//! A table with a sentence below it, and a table of columns.

use super::screen::Screen;
use super::table::table;

/// A table, and below it what its columns mean.
pub fn explained<Row: AsRef<[Cell]>, Cell: AsRef<str>>(
    screen: &Screen,
    header: &[impl AsRef<str>],
    rows: impl IntoIterator<Item = Row>,
    words: &str,
) -> String {
    format!("{}\n{}", table(screen, header, rows), screen.wrap(words, 2))
}

/// The rows of a table whose columns are known: each begins with its name, and has one cell of each
/// column.
pub fn rows_of(names: &[impl AsRef<str>], columns: &[Vec<String>]) -> Vec<Vec<String>> {
    let row = |(i, name): (usize, &str)| {
        let cells = columns.iter().map(|column| column[i].clone());
        std::iter::once(name.to_string()).chain(cells).collect()
    };
    names.iter().map(AsRef::as_ref).enumerate().map(row).collect()
}
