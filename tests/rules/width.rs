//! Comments are as wide as code, 100 columns: a listing in the book, in a notebook or on a
//! projector has no room for more. rustfmt keeps code within them; it leaves comments as they are.

use crate::ROOT;
use crate::sources::{rust_files, text};
use std::path::Path;

const COLUMNS: usize = 100;

/// Whether a line has a comment that should have been broken. A row of a table cannot be, and a
/// single word such as an address cannot be.
fn is_too_wide(line: &str) -> bool {
    let before = line.split("//").next().unwrap_or_default();
    let has_comment = before.len() < line.len() && !before.contains('"');
    let comment = line[before.len()..].trim_start_matches(['/', '!']).trim();
    let fixed = comment.starts_with('|') || !comment.contains(' ');
    has_comment && !fixed && line.chars().count() > COLUMNS
}

#[test]
fn comments_are_at_most_100_columns_wide() {
    let root = Path::new(ROOT);
    let mut wide = Vec::new();
    for folder in ["src", "crates", "labs", "tests", "benches", "examples", ".ci"] {
        for file in rust_files(&root.join(folder)) {
            for (at, line) in text(&file).lines().enumerate() {
                if is_too_wide(line) {
                    wide.push(format!("{}:{}: {line}", file.display(), at + 1));
                }
            }
        }
    }
    assert!(
        wide.is_empty(),
        "wrap these comments at {COLUMNS} columns:\n{}",
        wide.join("\n")
    );
}

#[test]
fn only_what_can_be_broken_is_too_wide() {
    let words = "word ".repeat(25);
    for line in [format!("/// {words}"), format!("    let x = 1; // {words}")] {
        assert!(is_too_wide(&line), "{line}");
    }
    let address = format!("//! [a]: https://{}", "a".repeat(100));
    let string = format!("    let x = \"https://{words}\";");
    for line in [format!("/// | {words} |"), address.replace("[a]: ", ""), string, words] {
        assert!(!is_too_wide(&line), "{line}");
    }
}
