//! How the book's page of paths is read: each path has a heading and a table, a row of which says
//! its minutes, which pages one reads and which exercises one does.

/// A path's name: its heading up to the comma.
pub fn heading_of(section: &str) -> &str {
    section.split([',', ':', '\n']).next().unwrap_or_default()
}

/// A row of a path: its minutes, what is read and done, and the rest.
pub fn row(line: &str) -> Option<(usize, &str, &str)> {
    let (minutes, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
    let (what, rest) = rest.split_once(" | ")?;
    Some((minutes.parse().ok()?, what, rest))
}

/// The pages that a row's text links.
pub fn pages_of_row(what: &str) -> impl Iterator<Item = &str> {
    let links = what.split("](").skip(1);
    links.map(|link| link.split([')', '#']).next().unwrap_or_default())
}
