//! All exercises in one document, for those who teach: what is asked, what solves it, what goes
//! wrong, what to say afterwards.
//!
//! The document is Markdown: it can be read in a terminal, printed through any converter, and
//! searched.

use super::desk::Desk;
use super::recognised::{Recognised, read, recognised};
use kit::{Course, Exercise};
use serde::Serialize;
use shardlab::error::BadInput;
use std::fmt::Write;

/// The document.
#[derive(Debug, Serialize)]
pub struct Handout {
    pub labs: Vec<LabSheet>,
}

/// The exercises of a lab, or of the ladder.
#[derive(Debug, Serialize)]
pub struct LabSheet {
    pub name: String,
    pub title: String,
    pub question: String,
    /// Empty for the ladder.
    pub takeaway: String,
    pub exercises: Vec<Sheet>,
}

/// One exercise.
#[derive(Debug, Serialize)]
pub struct Sheet {
    pub name: String,
    pub title: String,
    pub task: String,
    pub minutes: usize,
    pub optional: bool,
    pub broken: bool,
    /// The drawing in the blank's text, or nothing.
    pub picture: String,
    pub hints: Vec<String>,
    /// The items of our solution in which it differs from the blank. A repair is marked by lines
    /// with `-` and `+`.
    pub solution: String,
    pub debrief: String,
    pub recognised: Vec<Recognised>,
}

impl Handout {
    /// Reads all exercises of the course.
    ///
    /// # Errors
    /// If one of their files cannot be read.
    pub fn read(course: &Course, desk: &Desk) -> Result<Handout, BadInput> {
        let mut labs: Vec<LabSheet> = Vec::new();
        for exercise in course.exercises() {
            let folder = exercise.lab();
            if labs.last().is_none_or(|sheet| sheet.name != folder) {
                labs.push(LabSheet::of(course, folder));
            }
            let sheet = labs.last_mut().expect("it was pushed");
            sheet.exercises.push(Sheet::read(exercise, desk)?);
        }
        Ok(Handout { labs })
    }

    fn sheets(&self) -> impl Iterator<Item = &Sheet> {
        self.labs.iter().flat_map(|lab| &lab.exercises)
    }

    /// How many exercises it has, and how long they take together.
    pub fn extent(&self) -> String {
        let minutes: usize = self.sheets().map(|sheet| sheet.minutes).sum();
        format!("{} exercises, {minutes} minutes", self.sheets().count())
    }

    /// The document as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# The exercises, for those who teach\n\n\
             {}. Each has its task, hints, our solution, the debrief that solvers read, and what its check recognises: what \
             participants get wrong, and what they are told. Participants should not have this.\n\n\
             | exercise | title | minutes |\n|---|---|---:|\n",
            self.extent()
        );
        for sheet in self.sheets() {
            writeln!(text, "| {} | {} | {} |", sheet.name, sheet.title, sheet.minutes)
                .expect("a string grows");
        }
        for lab in &self.labs {
            text += &format!("\n## {} · {}\n\n{}\n", lab.name, lab.title, lab.question);
            if !lab.takeaway.is_empty() {
                text += &format!("\nTakeaway: {}\n", lab.takeaway);
            }
            for sheet in &lab.exercises {
                text += &sheet.markdown();
            }
        }
        text
    }
}

impl LabSheet {
    /// What `labs.toml` says of a folder, without its exercises.
    fn of(course: &Course, folder: &str) -> LabSheet {
        let ladder = &course.ladder;
        let said = match course.labs.iter().find(|lab| lab.name == folder) {
            Some(lab) => [&lab.title, &lab.question, &lab.takeaway],
            None => [&ladder.title, &ladder.question, &String::new()],
        };
        let [title, question, takeaway] = said.map(String::clone);
        LabSheet {
            name: folder.into(),
            title,
            question,
            takeaway,
            exercises: Vec::new(),
        }
    }
}

impl Sheet {
    fn read(exercise: &Exercise, desk: &Desk) -> Result<Sheet, BadInput> {
        let blank = read(&desk.blank(exercise))?;
        let solution = read(&desk.solution(exercise))?;
        Ok(Sheet {
            name: exercise.name.clone(),
            title: exercise.title.clone(),
            task: exercise.task.clone(),
            minutes: exercise.minutes,
            optional: exercise.optional,
            broken: exercise.broken,
            picture: picture(&blank),
            hints: exercise.hints.clone(),
            solution: changed(&blank, &solution, exercise.broken),
            debrief: exercise.debrief.clone(),
            recognised: recognised(desk, exercise)?,
        })
    }

    fn markdown(&self) -> String {
        let mut kind = format!("{} minutes", self.minutes);
        for (is, word) in [(self.broken, "a repair"), (self.optional, "optional")] {
            if is {
                kind += &format!(", {word}");
            }
        }
        let mut text =
            format!("\n### {} · {}\n\n*{kind}.* Task: {}.\n", self.name, self.title, self.task);
        if !self.picture.is_empty() {
            text += &format!("\n```text\n{}\n```\n", self.picture);
        }
        text += "\n**Hints**\n\n";
        for (i, hint) in self.hints.iter().enumerate() {
            text += &format!("{}. {hint}\n", i + 1);
        }
        let language = if self.broken { "diff" } else { "rust" };
        text += &format!("\n**Solution**\n\n```{language}\n{}\n```\n", self.solution);
        text += &format!("\n**Debrief.** {}\n", self.debrief);
        if !self.recognised.is_empty() {
            text += "\n**What the check says**, below the claim that does not hold\n\n";
        }
        for Recognised { claim, says } in &self.recognised {
            text += &format!("- {claim}\n");
            for sentence in says {
                text += &format!("  - {sentence}\n");
            }
        }
        text
    }
}

/// The first drawing in a module's text: a block of `text` in fences.
fn picture(code: &str) -> String {
    let task = code.lines().map_while(|line| line.strip_prefix("//!"));
    let block = task
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .skip_while(|line| *line != "```text")
        .skip(1);
    let lines: Vec<&str> = block.take_while(|line| *line != "```").collect();
    lines.join("\n")
}

/// What a reader writes: the whole items of the solution in which it differs from the blank, after
/// what it imports in addition. `broken` code is shown with its repair.
fn changed(blank: &str, solution: &str, broken: bool) -> String {
    let [given, solved] = [code(blank), code(solution)];
    let before = equal(given.iter(), solved.iter());
    let most = given.len().min(solved.len()) - before;
    let after = equal(given.iter().rev(), solved.iter().rev()).min(most);
    let start = start_of_item(&solved, before);
    let end_given = end_of_item(&given, given.len() - after);
    let end_solved = end_of_item(&solved, solved.len() - after);
    let items = if broken {
        difference(&given[start..end_given], &solved[start..end_solved])
    } else {
        solved[start..end_solved].join("\n")
    };
    let is_new =
        |line: &&str| line.starts_with("use std::") && !blank.lines().any(|old| old == *line);
    let imports: String = solution
        .lines()
        .filter(is_new)
        .map(|line| format!("{}{line}\n", if broken { "+" } else { "" }))
        .collect();
    let gap = if imports.is_empty() { "" } else { "\n" };
    format!("{imports}{gap}{}", items.trim_end())
}

/// The lines of an exercise's file without its task and the standard library's imports.
fn code(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("use std::"));
    lines.skip_while(|line| line.starts_with("//!") || line.is_empty()).collect()
}

/// How many lines are equal at the beginning of both.
fn equal<'a>(
    one: impl Iterator<Item = &'a &'a str>,
    other: impl Iterator<Item = &'a &'a str>,
) -> usize {
    one.zip(other).take_while(|(a, b)| a == b).count()
}

/// Whether an item, its comment or its attribute begins here: a line at the margin, after an empty
/// one.
fn begins(lines: &[&str], at: usize) -> bool {
    let at_margin = |line: &str| !line.is_empty() && !line.starts_with([' ', '}', ')']);
    at == 0 || lines[at - 1].is_empty() && lines.get(at).is_some_and(|line| at_margin(line))
}

/// The first line of the item that the line `at` belongs to.
fn start_of_item(lines: &[&str], at: usize) -> usize {
    (0..=at.min(lines.len() - 1))
        .rev()
        .find(|&line| begins(lines, line))
        .unwrap_or(0)
}

/// The end of the item that the line before `at` belongs to.
fn end_of_item(lines: &[&str], at: usize) -> usize {
    (at..lines.len()).find(|&line| begins(lines, line)).unwrap_or(lines.len())
}

/// What became of some lines: those that went are marked with `-`, new ones with `+`.
fn difference(old: &[&str], new: &[&str]) -> String {
    // same[i][j]: how many lines of old[i..] and new[j..] can stay.
    let mut same = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            same[i][j] = if old[i] == new[j] {
                same[i + 1][j + 1] + 1
            } else {
                same[i + 1][j].max(same[i][j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(format!(" {}", old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && same[i + 1][j] >= same[i][j + 1] {
            lines.push(format!("-{}", old[i]));
            i += 1;
        } else {
            lines.push(format!("+{}", new[j]));
            j += 1;
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n").trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLANK: &str = "\
//! a-task · Its title
//!
//! Add them.
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

use shardlab::Result;

/// Given.
pub struct Given;

/// The sum.
pub fn sum(all: &[u64]) -> u64 {
    let start = 0;

    todo!(\"add {all:?}\")
}

/// Given, too.
pub fn other() {}
";

    #[test]
    fn the_picture_is_the_first_drawing() {
        assert_eq!(picture(BLANK), "rank 0   1 2   →   4\n\nrank 1   1     →   4");
        assert_eq!(picture("//! a-task\n\nlet a = \"```text\";\n"), "");
    }

    #[test]
    fn a_solution_is_the_items_that_the_reader_writes() {
        let solution = BLANK
            .replace(
                "    todo!(\"add {all:?}\")\n}\n",
                "    all.iter().fold(start, add)\n}\n\nfn add(a: u64, b: &u64) -> u64 {\n    a + b\n}\n",
            )
            .replace("use shardlab", "use std::ops::Add;\nuse shardlab");
        assert_eq!(
            changed(BLANK, &solution, false),
            "use std::ops::Add;\n\n/// The sum.\npub fn sum(all: &[u64]) -> u64 {\n    let start = 0;\n\n    \
             all.iter().fold(start, add)\n}\n\nfn add(a: u64, b: &u64) -> u64 {\n    a + b\n}"
        );
    }

    #[test]
    fn a_repair_is_a_difference() {
        let repaired = BLANK.replace("let start = 0", "let start = 1");
        assert_eq!(
            changed(BLANK, &repaired, true),
            " /// The sum.\n pub fn sum(all: &[u64]) -> u64 {\n-    let start = 0;\n+    let start = 1;\n\n     \
             todo!(\"add {all:?}\")\n }"
        );
    }
}
