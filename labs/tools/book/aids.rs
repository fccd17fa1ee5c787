//! What a page gets beside its text while mdBook builds the book: the glossary's definition of a
//! word where a page first uses it, and a line for each path through the book that the page is on.
//!
//! `book/aids.js` shows the line of the path that the reader has chosen.

use super::compare::pattern;
use anyhow::{Context, Result};
use kit::paths::{heading_of, pages_of_row, row};
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

/// Words that pages also use in a different sense.
const AMBIGUOUS: [&str; 8] =
    ["depth", "exposed", "hidden", "reduce", "round", "scatter", "source", "step"];

/// The glossary and the paths, as their pages have them.
pub struct Aids {
    /// Long ones first: a "pipeline stage" is no "stage".
    terms: Vec<Term>,
    paths: Vec<Path>,
}

struct Term {
    word: String,
    /// The page that explains it.
    page: String,
    definition: String,
}

struct Path {
    name: String,
    rows: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    minutes: usize,
    /// As the table has it.
    what: String,
    /// The pages that it names.
    pages: Vec<String>,
}

impl Aids {
    /// Reads them in the checkout at `root`.
    ///
    /// # Errors
    ///
    /// Where the book has no glossary, or no page with paths.
    pub fn read(root: &std::path::Path) -> Result<Aids> {
        let glossary = read(root, "book/src/glossary.md")?;
        let how_to_use = read(root, "book/src/how-to-use.md")?;
        Ok(Aids { terms: terms(&glossary), paths: paths(&how_to_use) })
    }

    /// The names of the paths that read this page.
    pub(super) fn paths_with(&self, page: &str) -> impl Iterator<Item = &str> {
        self.paths
            .iter()
            .filter(move |path| path.row_of(page).is_some())
            .map(|path| &*path.name)
    }

    /// The page with both.
    pub fn add(&self, file: &str, page: &str) -> String {
        let defines = ["glossary.md", "symbols.md", "how-to-use.md"].contains(&file);
        // Those who teach know the words, and a slide has no room for more.
        if defines || file.starts_with("teach/") {
            return page.to_owned();
        }
        let page = self.with_definitions(file, page);
        let lines: String = self.paths.iter().map(|path| path.line(file)).collect();
        match page.split_once("\n\n") {
            Some((title, rest)) if !lines.is_empty() => format!("{title}\n\n{lines}{rest}"),
            _ => page,
        }
    }

    fn with_definitions(&self, file: &str, page: &str) -> String {
        let mut open: Vec<&Term> = self.terms.iter().filter(|term| term.page != file).collect();
        let mut out = String::new();
        let mut fenced = false;
        for line in page.split_inclusive('\n') {
            // Data for an interactive figure are in a script.
            fenced ^= line.starts_with("```")
                || line.starts_with("<script")
                || line.starts_with("</script");
            if fenced || line.starts_with(['`', '#', '<', '$', '{']) {
                out += line;
                continue;
            }
            if line.starts_with('|') {
                out += &with_units(line);
                continue;
            }
            let mut taken = not_prose(line);
            let mut found: Vec<(usize, usize, &Term)> = Vec::new();
            open.retain(|term| {
                let Some((start, end)) = place(line, &term.word, &taken) else {
                    return true;
                };
                taken.push((start, end));
                found.push((start, end, term));
                false
            });
            found.sort_by_key(|word| word.0);
            let mut at = 0;
            for (start, end, term) in found {
                let word = &line[start..end];
                let says = &term.definition;
                out += &line[at..start];
                let _ = write!(
                    out,
                    "<span class=\"term\" tabindex=\"0\" aria-description=\"{says}\">{word}</span>"
                );
                at = end;
            }
            out += &line[at..];
        }
        out
    }
}

/// A number and its unit in a row of a table.
static UNIT: LazyLock<Regex> =
    LazyLock::new(|| pattern("([0-9]) (B|kB|MB|GB|TB|µs|ms|s|GB/s)( |$)"));

/// A cell such as `2.28 (2.26-2.31)`.
static RANGE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^( *)([0-9][0-9 .,()-]* \([0-9 .,()-]*\))( *)$"));

/// A row of a table, whose numbers keep their units and their ranges on their line.
fn with_units(line: &str) -> String {
    let with_range = |cell| RANGE.replace(cell, "$1<span class=\"range\">$2</span>$3");
    let cells: Vec<_> = line.split('|').map(with_range).collect();
    UNIT.replace_all(&cells.join("|"), "$1\u{a0}$2$3").into_owned()
}

/// A file of the checkout.
pub(super) fn read(root: &std::path::Path, file: &str) -> Result<String> {
    std::fs::read_to_string(root.join(file)).with_context(|| format!("cannot read {file}"))
}

/// Lines such as `- **bubble** ([lab06](lab06.md)): the time in which…`.
fn terms(glossary: &str) -> Vec<Term> {
    let term = |line: &str| {
        let (word, rest) = line.strip_prefix("- **")?.split_once("** (")?;
        let (link, definition) = rest.split_once("): ")?;
        let page = link.split_once("](")?.1.trim_end_matches(')');
        let definition = definition.replace('`', "").replace('&', "&amp;").replace('"', "&quot;");
        Some(Term { word: word.into(), page: page.into(), definition })
    };
    let mut all: Vec<Term> = glossary.lines().filter_map(term).collect();
    all.retain(|term| !AMBIGUOUS.contains(&term.word.as_str()));
    all.sort_by_key(|term| std::cmp::Reverse(term.word.len()));
    all
}

/// The parts of a line that are code, formulas, links, HTML or what the page explains itself.
fn not_prose(line: &str) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (begins, ends) in [("`", "`"), ("$", "$"), ("**", "**"), ("[", ")"), ("<", ">")] {
        let mut at = 0;
        while let Some(start) = line[at..].find(begins).map(|found| at + found) {
            let inside = start + begins.len();
            let Some(end) = line[inside..].find(ends) else {
                break;
            };
            at = inside + end + ends.len();
            all.push((start, at));
        }
    }
    all
}

/// Where a line first has this word, or its plural, outside of what is taken. A word in lower case
/// may begin a sentence.
fn place(line: &str, word: &str, taken: &[(usize, usize)]) -> Option<(usize, usize)> {
    let is_lower = !word.contains(|c: char| c.is_ascii_uppercase());
    let text = if is_lower {
        line.to_ascii_lowercase()
    } else {
        line.to_owned()
    };
    let in_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(word).find_map(|(start, _)| {
        let rest = &text[start + word.len()..];
        let plural = ["es", "s", ""].into_iter().find(|plural| {
            rest.strip_prefix(*plural).is_some_and(|rest| !rest.starts_with(in_word))
        })?;
        let end = start + word.len() + plural.len();
        let free = taken.iter().all(|&(from, to)| end <= from || to <= start);
        (free && !text[..start].ends_with(in_word)).then_some((start, end))
    })
}

/// The paths of the page, each in its rows. A row that names an earlier path stands for that
/// path's.
fn paths(page: &str) -> Vec<Path> {
    let mut all: Vec<Path> = Vec::new();
    for section in page.split("\n### ").skip(1) {
        let mut rows = Vec::new();
        for (minutes, what, _) in section.lines().filter_map(row).filter(|row| row.1 != "pauses") {
            if let Some(path) = all.iter().find(|path| what == path.name) {
                rows.extend(path.rows.iter().cloned());
                continue;
            }
            let pages = pages_of_row(what).map(String::from).collect();
            rows.push(Row { minutes, what: what.into(), pages });
        }
        if !rows.is_empty() {
            all.push(Path { name: heading_of(section).into(), rows });
        }
    }
    all
}

impl Path {
    /// The row that names this page.
    fn row_of(&self, file: &str) -> Option<usize> {
        self.rows.iter().position(|row| row.pages.iter().any(|page| page == file))
    }

    /// The line of a page that is on this path, which a page hides; or nothing.
    fn line(&self, file: &str) -> String {
        let Some(at) = self.row_of(file) else {
            return String::new();
        };
        let Path { name, rows } = self;
        let Row { minutes, what, .. } = &rows[at];
        let mut line = format!(
            "<nav class=\"path\" data-path=\"{name}\" hidden>\n\n**{name}**, row {} of {}, {minutes} minutes: {what}.",
            at + 1,
            rows.len(),
        );
        if let Some(before) = at.checked_sub(1).and_then(|before| rows.get(before)) {
            let _ = write!(line, " Before it: {}.", before.what);
        }
        match rows.get(at + 1) {
            Some(next) => {
                let _ = write!(line, " Next: {}.", next.what);
            }
            None => line += " It is the last one.",
        }
        line + "\n\n</nav>\n\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Glossary\n\n\
        - **stage** ([one](one.md)): a part.\n\
        - **pipeline stage** ([lab06](lab06.md)): the layers of `one` rank & \"more\".\n\
        - **ZeRO** ([lab04](lab04.md)): data parallelism.\n";
    const PATHS: &str = "# How\n\n### Half, you know: 30 minutes\n\n\
        | minutes | what | end |\n|---:|---|---|\n\
        | 10 | [one](one.md), with `lab01-ring` | a |\n\
        | 20 | [two](two.md#part): only its run | b |\n\
        | 15 | pauses | |\n\n\
        ### Day, whole: 60 minutes\n\n| 30 | Half | a |\n| 30 | [three](three.md) | c |\n";

    fn aids() -> Aids {
        Aids { terms: terms(GLOSSARY), paths: paths(PATHS) }
    }

    #[test]
    fn a_word_is_defined_where_a_page_first_uses_it() {
        let page = "# A stage\n\nPipeline stages, `ZeRO`, [ZeRO](lab04.md), **stage**; \
            ZeRO, backstage and a stage.\n\n```\nstage\n```\n<script>\nstage\n</script>\nA stage.\n";
        let html = aids().add("page.md", page);
        let said = "aria-description=\"the layers of one rank &amp; &quot;more&quot;.\">Pipeline stages</span>, `ZeRO`";
        assert!(html.contains(said), "{html}");
        assert!(
            html.contains("**stage**; <span class=\"term\"")
                && html.contains(">ZeRO</span>, backstage"),
            "{html}"
        );
        assert!(
            html.ends_with(
                ">stage</span>.\n\n```\nstage\n```\n<script>\nstage\n</script>\nA stage.\n"
            ),
            "{html}"
        );
        for file in ["lab04.md", "teach/slides.md"] {
            assert_eq!(aids().add(file, "# Z\n\nZeRO\n"), "# Z\n\nZeRO\n");
        }
        assert_eq!(
            with_units("| 4.5 GB | 6 ms on 4 GB/s |\n"),
            "| 4.5\u{a0}GB | 6\u{a0}ms on 4\u{a0}GB/s |\n"
        );
        assert_eq!(
            with_units("| 2.28 (2.26-2.31) | lab03 (2) | 4 |\n"),
            "| <span class=\"range\">2.28 (2.26-2.31)</span> | lab03 (2) | 4 |\n"
        );
    }

    #[test]
    fn a_page_has_a_line_for_each_of_its_paths() {
        let lines = aids().add("two.md", "# Two\n\ntext\n");
        let half = "data-path=\"Half\" hidden>\n\n**Half**, row 2 of 2, 20 minutes: [two](two.md#part): only its run. \
            Before it: [one](one.md), with `lab01-ring`. It is the last one.\n\n</nav>";
        assert!(lines.contains(half), "{lines}");
        assert!(
            lines.contains("**Day**, row 2 of 3, 20 minutes")
                && lines.contains("Next: [three](three.md).")
        );
        assert!(!aids().add("four.md", "# Four\n\ntext\n").contains("nav"));
    }
}
