//! How long a page takes, computed from what is on it, so that a path through the book can promise
//! its minutes.
//!
//! The rule, which `book/src/how-to-use.md` also tells its readers: prose is read at 140 words a
//! minute; a line of output takes 12 seconds, a line of a listing 8, a command 15, a picture or a
//! displayed formula 60, a figure that one can change 3 minutes. A lab's page also takes as long as
//! the lab runs. The short form leaves out the boxes marked "Longer" and the sections that are for
//! later. The full form also has two minutes for each question with a folded answer. Nobody reads
//! notes for instructors.

use anyhow::{Context, Result};
use kit::Course;
use std::path::{Path, PathBuf};

const WORDS_A_MINUTE: f64 = 140.0;
const OUTPUT_LINE: f64 = 12.0;
const CODE_LINE: f64 = 8.0;
const COMMAND: f64 = 15.0;
const PICTURE: f64 = 60.0;
const FORMULA: f64 = 60.0;
const INTERACTIVE: f64 = 180.0;
const QUESTION: f64 = 120.0;

/// Sections that the short form leaves out, and one that nobody has to read.
const FOR_LATER: [&str; 2] = ["Exercises", "On a cluster"];
const NOT_READ: [&str; 1] = ["Further reading"];

/// The page of the paths.
const PATHS: &str = "how-to-use.md";

/// The page of the timetables, and when their days begin.
const CLOCKS: &str = "teach/timetables.md";
const BEGINS: usize = 9 * 60;

/// Where pages link to the rule.
const RULE: &str = "how-to-use.md#how-minutes-are-counted";

/// What the line of a page begins with that says its minutes.
const SAYS: &str = "Takes [";

/// Minutes of a page: multiples of five, so that nobody takes them for more exact than they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minutes {
    pub short: usize,
    pub full: usize,
}

/// A page that says minutes, with its text as it is and as it should be.
pub struct Stated {
    pub path: PathBuf,
    pub is: String,
    pub should: String,
}

/// Every page that says how long it takes, and the page with the paths.
///
/// # Errors
/// If a page, or a file that it includes, cannot be read; or if a path names what is not there.
pub fn stated(root: &Path) -> Result<Vec<Stated>> {
    let course = Course::read()?;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root.join("book/src"))? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if !file.ends_with(".md") {
            continue;
        }
        let is = page_text(root, &file)?;
        let should = if file == PATHS {
            with_paths(root, &course, &is)?
        } else if is.lines().any(|line| line.starts_with(SAYS)) {
            let minutes = minutes(root, &course, &file)?;
            with_minutes(&is, &says(minutes, exercises_of(&course, &is)))
        } else {
            continue;
        };
        all.push(Stated { path: root.join("book/src").join(file), is, should });
    }
    let is = page_text(root, CLOCKS)?;
    let should = with_clocks(&is);
    all.push(Stated { path: root.join("book/src").join(CLOCKS), is, should });
    Ok(all)
}

/// The timetables with the clock in each row: the minutes before it, from nine o'clock on. A row of
/// a second day begins at nine again.
fn with_clocks(page: &str) -> String {
    let mut out = String::new();
    let mut at = BEGINS;
    for line in page.lines() {
        if line.starts_with('#') {
            at = BEGINS;
        }
        match clock_row(line) {
            Some((minutes, who, what)) => {
                if what.contains("second day") {
                    at = BEGINS;
                }
                out += &format!("| {}:{:02} | {minutes} | {who} | {what}", at / 60, at % 60);
                at += minutes;
            }
            None => out += line,
        }
        out.push('\n');
    }
    out
}

/// A row of a timetable: the clock, and then the cells of a path's row.
fn clock_row(line: &str) -> Option<(usize, &str, &str)> {
    let (clock, cells) = line.strip_prefix("| ")?.split_once(' ')?;
    row(cells).filter(|_| clock.contains(':'))
}

/// The name of each timetable's path, and its minutes without meals. A path can have a second one,
/// below a heading of its own: for another kind of room.
///
/// # Errors
/// If the page cannot be read.
pub fn timetables(root: &Path) -> Result<Vec<(String, usize)>> {
    let page = page_text(root, CLOCKS)?;
    let mut all = Vec::new();
    for section in page.split("\n### ").skip(1) {
        let path = section.lines().next().unwrap_or_default();
        for table in section.split("\n#### ") {
            let rows = table.lines().filter_map(clock_row);
            let minutes = rows.filter(|row| row.1 != "lunch").map(|row| row.0).sum();
            all.push((path.to_string(), minutes));
        }
    }
    Ok(all)
}

/// A page's minutes, by the rule.
///
/// # Errors
/// If the page, or a file that it includes, cannot be read.
pub fn minutes(root: &Path, course: &Course, file: &str) -> Result<Minutes> {
    let [short, full] = reading(root, &page_text(root, file)?)?;
    let name = file.strip_suffix(".md").unwrap_or(file);
    let run = match course.labs.iter().find(|lab| lab.name == name) {
        Some(lab) => seconds_of(&lab.takes)?,
        None => 0.0,
    };
    let rounded = |seconds: f64| 5 * (seconds / 60.0 / 5.0).round().max(1.0) as usize;
    Ok(Minutes { short: rounded(short + run), full: rounded(full + run) })
}

/// `10 seconds`, `1 minute`.
fn seconds_of(takes: &str) -> Result<f64> {
    let (number, unit) = takes.split_once(' ').with_context(|| format!("{takes:?} has no unit"))?;
    let number: f64 = number.parse().with_context(|| format!("{takes:?} begins with no number"))?;
    let each = if unit.starts_with("minute") { 60.0 } else { 1.0 };
    Ok(number * each)
}

pub(super) fn page_text(root: &Path, file: &str) -> Result<String> {
    let path = root.join("book/src").join(file);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The seconds of everything on a page, in short form and in full.
fn reading(root: &Path, page: &str) -> Result<[f64; 2]> {
    let mut short = 0.0;
    let mut full = 0.0;
    let mut boxes: Vec<bool> = Vec::new(); // those that are open; whether they are "longer"
    let mut fence: Option<&str> = None;
    let mut section = "";
    let mut in_formula = false;
    for line in page.lines() {
        let trimmed = line.trim_start();
        if let Some(language) = trimmed.strip_prefix("```") {
            fence = match fence {
                None => Some(language),
                Some(_) => None,
            };
            continue;
        }
        if fence.is_none() {
            if let Some(heading) = line.strip_prefix("## ") {
                section = heading;
            }
            if trimmed.starts_with("<details") {
                boxes.push(trimmed.contains("longer"));
                if !trimmed.contains("<summary>Answer") {
                    continue;
                }
            }
            if trimmed.starts_with("</details") {
                boxes.pop();
                continue;
            }
        }
        if NOT_READ.contains(&section) {
            continue;
        }
        let folded = boxes.iter().any(|longer| !longer);
        let answer = folded && boxes.len() == 1 && trimmed.contains("<summary>Answer");
        let takes = match fence {
            _ if answer => QUESTION,
            _ if folded => continue,
            Some(language) => lines_of(root, line)? * seconds_of_a_line(language),
            // The map above a page is a glance.
            None if trimmed.contains("/map") && trimmed.contains(".svg}}") => 0.0,
            None if trimmed.contains(".svg}}") => PICTURE,
            None if trimmed.starts_with("<figure data-figure") => INTERACTIVE,
            None if trimmed.contains("$$") => {
                // A formula on lines of its own begins and ends with a mark.
                let marks = trimmed.matches("$$").count();
                let begins = marks == 2 || !in_formula;
                in_formula = marks == 1 && begins;
                if begins { FORMULA } else { 0.0 }
            }
            None => words(line) as f64 * 60.0 / WORDS_A_MINUTE,
        };
        full += takes;
        if boxes.is_empty() && !FOR_LATER.contains(&section) {
            short += takes;
        }
    }
    Ok([short, full])
}

fn seconds_of_a_line(language: &str) -> f64 {
    match language {
        "text" => OUTPUT_LINE,
        "sh" => COMMAND,
        _ => CODE_LINE,
    }
}

/// Lines of a fence's line: one, or those of a file or an anchor that it includes.
fn lines_of(root: &Path, line: &str) -> Result<f64> {
    let Some(include) = line.trim().strip_prefix("{{#include ") else {
        return Ok(1.0);
    };
    let include = include.trim_end_matches("}}");
    let (file, anchor) = match include.split_once(':') {
        Some((file, anchor)) => (file, Some(anchor)),
        None => (include, None),
    };
    let path = root.join("book/src").join(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let Some(anchor) = anchor else {
        return Ok(text.lines().count() as f64);
    };
    let ends = |line: &&str| !line.contains(&format!("ANCHOR_END: {anchor}"));
    let begins = |line: &&str| !line.trim_end().ends_with(&format!("ANCHOR: {anchor}"));
    let lines = text.lines().skip_while(begins).skip(1).take_while(ends);
    Ok(lines.filter(|line| !line.contains("ANCHOR")).count() as f64)
}

/// Words of a line of prose: what a link leads to, and HTML, are none.
fn words(line: &str) -> usize {
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(['<', ']']) {
        text += &rest[..at];
        let skipped = if rest[at..].starts_with("](") {
            rest[at..].find(')')
        } else if rest[at..].starts_with('<') {
            rest[at..].find('>')
        } else {
            Some(0)
        };
        rest = &rest[at + skipped.unwrap_or(0) + 1..];
    }
    text += rest;
    let word = |word: &&str| word.chars().any(char::is_alphanumeric);
    text.split_whitespace().filter(word).count()
}

/// Minutes of the exercises that a page's section of exercises names.
fn exercises_of(course: &Course, page: &str) -> usize {
    let mut sections = page.split("\n## ");
    let Some(section) = sections.find(|section| section.starts_with("Exercise")) else {
        return 0;
    };
    let named = course
        .exercises()
        .filter(|exercise| section.contains(&format!("- `{}`", exercise.name)));
    named.map(|exercise| exercise.minutes).sum()
}

/// The line in which a page says how long it takes.
fn says(minutes: Minutes, exercises: usize) -> String {
    let Minutes { short, full } = minutes;
    let mut line = if short == full {
        format!("Takes [{short} minutes]({RULE})")
    } else {
        format!("Takes [{short} minutes in short form, {full} in full]({RULE})")
    };
    if exercises > 0 {
        line += &format!("; its exercises take {exercises} more");
    }
    line + "."
}

/// The page with this line in place of its own.
fn with_minutes(page: &str, says: &str) -> String {
    let line = |line: &str| if line.starts_with(SAYS) { says } else { line }.to_owned() + "\n";
    page.lines().map(line).collect()
}

/// The paths with their minutes: in each row, and in all.
///
/// A row's pages are read in short form, and the exercises that it names are done: together rounded
/// to 5 minutes. A row can name a path before it, by its heading up to the comma. A row that says
/// "only", or that names nothing, keeps its minutes.
fn with_paths(root: &Path, course: &Course, page: &str) -> Result<String> {
    let mut sections = page.split("\n### ");
    let mut out = sections.next().unwrap_or_default().to_owned();
    let mut before: Vec<(&str, usize)> = Vec::new();
    for section in sections {
        let (heading, rest) = section.split_once('\n').unwrap_or((section, ""));
        let mut sum = 0;
        let mut lines = Vec::new();
        for line in rest.split('\n') {
            let Some((minutes, what, rest)) = row(line) else {
                lines.push(line.to_owned());
                continue;
            };
            let named = before.iter().find(|path| what.contains(path.0));
            let minutes = match (named, minutes_of_row(root, course, what)?) {
                (Some(path), _) => path.1,
                (None, Some(computed)) if !what.contains(" only") => (computed + 2) / 5 * 5,
                _ => minutes,
            };
            sum += minutes;
            lines.push(format!("| {minutes} | {what} | {rest}"));
        }
        out += "\n### ";
        match heading.rsplit_once(": ") {
            Some((name, _)) => out += &format!("{name}: {sum} minutes"),
            None => out += heading,
        }
        out += "\n";
        out += &lines.join("\n");
        before.push((heading.split([',', ':']).next().unwrap_or_default(), sum));
    }
    Ok(out)
}

/// A row of a path: its minutes, what is read and done, and the rest.
pub(super) fn row(line: &str) -> Option<(usize, &str, &str)> {
    let (minutes, rest) = line.strip_prefix("| ")?.split_once(" | ")?;
    let (what, rest) = rest.split_once(" | ")?;
    Some((minutes.parse().ok()?, what, rest))
}

/// The pages that a row's text links.
pub(super) fn pages_of_row(what: &str) -> impl Iterator<Item = &str> {
    let links = what.split("](").skip(1);
    links.map(|link| link.split([')', '#']).next().unwrap_or_default())
}

fn minutes_of_row(root: &Path, course: &Course, what: &str) -> Result<Option<usize>> {
    let mut all = None;
    for file in pages_of_row(what) {
        all = Some(all.unwrap_or(0) + minutes(root, course, file)?.short);
    }
    let code = what.split('`').skip(1).step_by(2);
    for name in code.filter(|name| name.starts_with("lab") && name.contains('-')) {
        let exercise = course.exercises().find(|known| known.name == name);
        let exercise =
            exercise.with_context(|| format!("a path names {name}, which is no exercise"))?;
        all = Some(all.unwrap_or(0) + exercise.minutes);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timetable_has_the_clock_in_each_row() {
        let page = "### A\n\n| clock | minutes | who |\n|---:|---:|---|\n| 9:00 | 75 | all | x |\n\
            | 1:00 | 60 | lunch | |\n| 0:0 | 5 | all | the second day |\n| 2:00 | 5 | all | y |\n";
        let with = with_clocks(page);
        for row in [
            "| 9:00 | 75 | all | x |",
            "| 10:15 | 60 |",
            "| 9:00 | 5 | all | the",
            "| 9:05 | 5 |",
        ] {
            assert!(with.contains(row), "{with}");
        }
        assert_eq!(with_clocks(&with), with);
    }

    #[test]
    fn each_part_of_a_page_takes_its_time() {
        let prose = "a [b c](d.md#e) <b>f</b>\n".repeat(70); // four words a line
        for (page, short, full) in [
            (prose.as_str(), 120.0, 120.0),
            ("```text\none\ntwo\n```\n", 24.0, 24.0),
            ("```rust\none\n```\n```sh\ncargo\n```\n", 23.0, 23.0),
            ("{{#include ../outputs/a.svg}}\n$$ x $$\n", 120.0, 120.0),
            ("<figure data-figure=\"ring\">\n", 180.0, 180.0),
            ("<details class=\"longer\">\n```text\none\n```\n</details>\n", 0.0, 12.0),
            ("<details>\n```text\none\n```\n</details>\n", 0.0, 0.0),
            ("<details>\n<summary>Answer</summary>\none\n</details>\n", 0.0, 120.0),
            ("## On a cluster\none two three four\n", 0.0, 3.0),
            ("## Further reading\none two three\n", 0.0, 0.0),
        ] {
            let found = reading(Path::new("/nowhere"), page).unwrap();
            assert!(
                (found[0] - short).abs() < 1e-9 && (found[1] - full).abs() < 1e-9,
                "{page}: {found:?}"
            );
        }
    }
}
