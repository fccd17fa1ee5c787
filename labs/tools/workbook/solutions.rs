//! All exercises in one document, for those who teach: what is asked, what solves it, what goes
//! wrong, what to say afterwards.
//!
//! The document is Markdown: it can be read in a terminal, printed through any converter, and
//! searched.

use super::desk::{Desk, files_of, read};
use super::recognised::{Recognised, recognised};
use kit::{Course, Exercise};
use shardlab::error::BadInput;

/// The document as Markdown.
///
/// # Errors
/// If a file of an exercise cannot be read.
pub fn handout(course: &Course, desk: &Desk) -> Result<String, BadInput> {
    let minutes: usize = course.exercises().map(|exercise| exercise.minutes).sum();
    let mut text = format!(
        "# The exercises, for those who teach\n\n\
         {} exercises, {minutes} minutes. Each has its task, hints, our solution, the debrief that solvers read, and what its \
         check recognises: what participants get wrong, and what they are told. Participants should not have this.\n{LENGTH}\n",
        course.exercises().count()
    );
    text += &format!("\n## Notes for the book's pages\n{}", notes(course, desk)?);
    for lab in &course.labs {
        text += &format!("\n## {} · {}\n\n{}\n", lab.name, lab.title, lab.question);
        text += &format!("\nTakeaway: {}\n", lab.takeaway);
        for exercise in &lab.exercises {
            text += &sheet(exercise, desk)?;
        }
    }
    let ladder = &course.ladder;
    text += &format!("\n## ladder · {}\n\n{}\n", ladder.title, ladder.question);
    for exercise in &ladder.exercises {
        text += &sheet(exercise, desk)?;
    }
    Ok(text.replacen(LENGTH, &length(&text), 1))
}

/// Where the document says how long it is.
const LENGTH: &str = "{length}";

/// A printed page, in lines and in characters of a line.
const PAGE: [usize; 2] = [52, 92];

/// How long a text is on paper.
fn length(text: &str) -> String {
    let [lines_of_page, width] = PAGE;
    let lines: usize = text.lines().map(|line| line.chars().count().div_ceil(width).max(1)).sum();
    let pages = lines.div_ceil(lines_of_page);
    format!("It has {pages} pages, at {lines_of_page} lines a page and {width} characters a line.")
}

/// What to ask on a page, and where people get stuck: the labs' pages in their order, then the
/// others, each with a file of its own.
fn notes(course: &Course, desk: &Desk) -> Result<String, BadInput> {
    let of_lab = |lab: &kit::Lab| desk.root.join("labs").join(&lab.name).join("instructors.md");
    let of_labs = course.labs.iter().map(of_lab);
    let mut text = String::new();
    for file in of_labs.chain(files_of(&desk.root.join("labs/instructors"))?) {
        text += &format!("\n##{}", read(&file)?);
    }
    Ok(text)
}

fn sheet(exercise: &Exercise, desk: &Desk) -> Result<String, BadInput> {
    let blank = read(&desk.blank(exercise))?;
    let solution = read(&desk.solution(exercise))?;
    let Exercise { name, title, task, debrief, minutes, .. } = exercise;
    let mut kind = format!("{minutes} minutes");
    if exercise.broken {
        kind += ", a repair";
    }
    if exercise.optional {
        kind += ", optional";
    }
    let mut text = format!("\n### {name} · {title}\n\n*{kind}.* Task: {task}.\n");
    let picture = picture(&blank);
    if !picture.is_empty() {
        text += &format!("\n```text\n{picture}\n```\n");
    }
    text += "\n**Hints**\n\n";
    for (i, hint) in exercise.hints.iter().enumerate() {
        text += &format!("{}. {hint}\n", i + 1);
    }
    let solution = if exercise.broken {
        format!("```diff\n{}\n```", repair(&blank, &solution))
    } else {
        format!("```rust\n{}\n```", code(&solution).join("\n"))
    };
    text += &format!("\n**Solution**\n\n{solution}\n");
    text += &format!("\n**Debrief.** {debrief}\n");
    let recognised = recognised(desk, exercise)?;
    if !recognised.is_empty() {
        text += "\n**What the check says**, below the claim that does not hold\n\n";
    }
    for Recognised { claim, says } in recognised {
        text += &format!("- {claim}\n");
        for sentence in says {
            text += &format!("  - {sentence}\n");
        }
    }
    Ok(text)
}

/// The first drawing in a module's text: a block of `text` in fences. Empty if there is none.
fn picture(code: &str) -> String {
    let task = code.lines().map_while(|line| line.strip_prefix("//!"));
    let lines = task.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let block = lines.skip_while(|line| *line != "```text").skip(1);
    let block: Vec<&str> = block.take_while(|line| *line != "```").collect();
    block.join("\n")
}

/// An exercise's file without its task.
fn code(text: &str) -> Vec<&str> {
    text.lines()
        .skip_while(|line| line.starts_with("//!") || line.is_empty())
        .collect()
}

/// What differs between broken code and its repair, from the first such line to the last.
fn repair(broken: &str, repaired: &str) -> String {
    let [mut old, mut new] = [code(broken), code(repaired)];
    while !old.is_empty() && old.first() == new.first() {
        old.remove(0);
        new.remove(0);
    }
    while !old.is_empty() && old.last() == new.last() {
        old.pop();
        new.pop();
    }
    let old = old.iter().map(|line| format!("-{line}"));
    let new = new.iter().map(|line| format!("+{line}"));
    old.chain(new).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: &str = "\
//! a-task · Its title
//!
//! ```text
//! rank 0   1 2   →   4
//!
//! rank 1   1     →   4
//! ```
//!
//! ```text
//! another
//! ```

/// The sum.
pub fn sum(all: &[u64]) -> u64 {
    let start = 0;
    all.iter().fold(start, add)\n}
";

    #[test]
    fn the_picture_is_the_first_drawing() {
        assert_eq!(picture(BLANK), "rank 0   1 2   →   4\n\nrank 1   1     →   4");
        assert_eq!(picture("//! a-task\n\nlet a = \"```text\";\n"), "");
    }

    #[test]
    fn its_length_counts_lines_that_are_wrapped() {
        let said =
            |lines: usize, wide: usize| length(&format!("{}\n", "x".repeat(wide)).repeat(lines));
        assert!(said(52, 92).starts_with("It has 1 pages"));
        assert!(said(52, 93).starts_with("It has 2 pages"));
        assert!(said(53, 0).starts_with("It has 2 pages"));
    }

    #[test]
    fn a_repair_is_a_difference() {
        let repaired = BLANK.replace("let start = 0", "let start = 1");
        assert_eq!(repair(BLANK, &repaired), "-    let start = 0;\n+    let start = 1;");
        assert_eq!(repair(BLANK, BLANK), "");
    }
}
