//! The forms of the short exercises on their labs' pages: the task, as the reader's file has
//! it, and a field for each number or word. `book/run/answer.js` has the exercise's own check read
//! them, which is compiled for the browser in `labs/web/checks.rs`.

use super::colours::escaped;
use super::places::filled;
use anyhow::{Context, Result, ensure};
use kit::{Course, Exercise};
use std::fmt::Write;
use std::fs::read_to_string;
use std::path::Path;

/// Where a page has an exercise's form: this, and the exercise's name.
const PLACE: &str = "<section class=\"answer\">";

/// The page with its forms.
///
/// # Errors
/// If a place names no exercise that has one, or the exercise's file cannot be read.
pub fn with_answers(course: &Course, root: &Path, page: &str) -> Result<String> {
    filled(page, PLACE, |name| form(course, root, name))
}

/// An exercise that can be read without a script, and is then solved in the terminal.
fn form(course: &Course, root: &Path, name: &str) -> Result<String> {
    let exercise = course.exercises().find(|exercise| exercise.name == name);
    let exercise = exercise.with_context(|| format!("no exercise is called {name}"))?;
    ensure!(!exercise.form.is_empty(), "labs.toml gives {name} no form");
    let Exercise { title, debrief, form, minutes, .. } = exercise;
    let file = root.join("labs").join(exercise.lab()).join("exercises").join(exercise.file());
    let text = read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let fields: String = form
        .iter()
        .map(|label| {
            format!(
                "<label>{} <input name=\"field\" autocomplete=\"off\" spellcheck=\"false\" required></label> ",
                escaped(label)
            )
        })
        .collect();
    let mut out = format!(
        "<section class=\"answer\" aria-labelledby=\"answer-{name}\">\n\n<p id=\"answer-{name}\"><b>{}.</b> {minutes} minutes.</p>\n\n",
        escaped(title)
    );
    out += &task(&text);
    let _ = write!(
        out,
        "\n<form data-exercise=\"{name}\" hidden><fieldset>{fields}</fieldset><button type=\"submit\">Check</button>\
         <p role=\"status\"></p></form>\n<p class=\"typed\"><code>cargo run --bin workbook -- check {name}</code> checks your \
         answer in <code>my/{}</code>.</p>\n<details hidden><summary>What others do</summary><p>{}</p></details>\n</section>\n",
        exercise.file(),
        escaped(debrief)
    );
    Ok(out)
}

/// The task in a reader's file: its first comment, without the title.
fn task(file: &str) -> String {
    let lines = file.lines().map_while(|line| line.strip_prefix("//!"));
    lines
        .skip(1)
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_the_task_a_field_for_each_number_and_a_command() {
        let course = Course::read().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let page = "before\n<section class=\"answer\">lab05-slice</section>\nafter\n";
        let html = with_answers(&course, &root, page).unwrap();
        assert!(html.starts_with("before\n") && html.ends_with("after\n"));
        assert!(html.contains("A     4096 x 16384"), "{html}");
        assert_eq!(html.matches("<input ").count(), 2);
        assert!(html.contains("check lab05-slice</code>"), "{html}");
        let of = |name: &str| {
            with_answers(&course, &root, &format!("<section class=\"answer\">{name}</section>"))
        };
        assert!(of("lab05-attention").unwrap_err().to_string().contains("no form"));
        assert!(of("lab05-nothing").is_err());
    }

    /// Each form is on its lab's page, once.
    #[test]
    fn each_form_is_on_its_page() {
        let course = Course::read().unwrap();
        let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../book/src");
        for exercise in course.exercises().filter(|exercise| !exercise.form.is_empty()) {
            let page = read_to_string(pages.join(format!("{}.md", exercise.lab()))).unwrap();
            let place = format!("\n{PLACE}{}</section>\n", exercise.name);
            assert_eq!(page.matches(&place).count(), 1, "{}", exercise.name);
        }
    }
}
