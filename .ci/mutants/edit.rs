//! What is drawn, written down and tried: an edit.

use super::Room;
use std::ops::Range;
use std::path::PathBuf;

/// One edit: `old`, at a place, becomes `new`.
#[derive(Clone)]
pub struct Edit {
    /// By which its switch knows it. 0 outside the list.
    pub number: usize,
    pub room: &'static Room,
    pub file: PathBuf,
    /// Line and column, from 1, of what a rule has found.
    pub at: [usize; 2],
    /// The bytes of `old` in the file: an expression, or a statement.
    pub range: Range<usize>,
    pub rule: &'static str,
    pub old: String,
    pub new: String,
    /// Whether tests noticed it in the last run, and which, or why none does.
    pub outcome: String,
}

impl Edit {
    /// What is long is shown by its beginning, on one line.
    pub fn change(&self) -> String {
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = |text: &str| line(text).chars().take(160).collect::<String>();
        format!("{}\t{}\t{}", self.rule, shown(&self.old), shown(&self.new))
    }

    pub fn row(&self) -> String {
        let Edit { number, room, at: [line, column], outcome, .. } = self;
        let place = format!("{}:{line}:{column}", self.file.display());
        format!("{number}\t{}\t{place}\t{}\t{outcome}", room.name, self.change())
    }

    pub fn overlaps(&self, other: &Edit) -> bool {
        let is_before = self.range.end <= other.range.start;
        let is_after = other.range.end <= self.range.start;
        self.file == other.file && !is_before && !is_after
    }
}
