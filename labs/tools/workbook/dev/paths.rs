//! How long pages and paths take. `labs/labs.toml` says a page's minutes; the page says them at its
//! head, a path adds up those of its rows, and a timetable has the clock of each.

use kit::Course;
use kit::paths::{heading_of, pages_of_row, row};
use shardlab::error::BadInput;

/// The folder of all pages.
pub(super) const PAGES: &str = "book/src/";

/// The page of the paths.
const PATHS: &str = "how-to-use.md";

/// The page of the timetables, and when their days begin.
const CLOCKS: &str = "teach/timetables.md";
const BEGINS: usize = 9 * 60;

/// Where pages link to what is in their minutes.
const RULE: &str = "how-to-use.md#how-minutes-are-counted";

/// What the line of a page begins with that says its minutes.
const SAYS: &str = "Takes [";

/// A page of the book with the minutes and clocks that it should say.
///
/// # Errors
/// If it has no minutes, or if a path names what is not there.
pub(super) fn put(course: &Course, file: &str, page: &str) -> Result<String, BadInput> {
    match file.trim_start_matches(PAGES) {
        PATHS => with_paths(course, page),
        CLOCKS => Ok(with_clocks(page)),
        file => with_minutes(course, file, page),
    }
}

/// A page's minutes in short form, and in full.
fn minutes(course: &Course, file: &str) -> Result<[usize; 2], BadInput> {
    let name = file.trim_end_matches(".md");
    course.minutes(name).ok_or_else(|| {
        let help = format!("write them into its table [minutes]:  {name} = [10, 15]");
        BadInput::new(format!("labs/labs.toml has no minutes of {file}"), help)
    })
}

/// The page with its minutes, and with those of the exercises that its own section names.
fn with_minutes(course: &Course, file: &str, page: &str) -> Result<String, BadInput> {
    let Some(is) = page.lines().find(|line| line.starts_with(SAYS)) else {
        return Ok(page.into());
    };
    let [short, full] = minutes(course, file)?;
    let mut says = match short == full {
        true => format!("{SAYS}{short} minutes]({RULE})"),
        false => format!("{SAYS}{short} minutes in short form, {full} in full]({RULE})"),
    };
    let section = page.split("\n## ").find(|section| section.starts_with("Exercise"));
    let is_named =
        |name: &str| section.is_some_and(|section| section.contains(&format!("- `{name}`")));
    let named = course.exercises().filter(|exercise| is_named(&exercise.name));
    let exercises: usize = named.map(|exercise| exercise.minutes).sum();
    if exercises > 0 {
        says += &format!("; its exercises take {exercises} more");
    }
    Ok(page.replacen(is, &(says + "."), 1))
}

/// The paths with their minutes: in each row, and in all.
///
/// A row's pages are read in short form, and the exercises that it names are done: together rounded
/// to 5 minutes. A row can name a path before it, by its heading up to the comma. A row that says
/// "only", or that names nothing, keeps its minutes.
fn with_paths(course: &Course, page: &str) -> Result<String, BadInput> {
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
            let minutes = match (named, minutes_of_row(course, what)?) {
                (Some(path), _) => path.1,
                (None, Some(computed)) if !what.contains(" only") => (computed + 2) / 5 * 5,
                _ => minutes,
            };
            sum += minutes;
            lines.push(format!("| {minutes} | {what} | {rest}"));
        }
        let heading = match heading.rsplit_once(": ") {
            Some((name, _)) => format!("{name}: {sum} minutes"),
            None => heading.into(),
        };
        out += &format!("\n### {heading}\n{}", lines.join("\n"));
        before.push((heading_of(section), sum));
    }
    Ok(out)
}

fn minutes_of_row(course: &Course, what: &str) -> Result<Option<usize>, BadInput> {
    let mut all = Vec::new();
    for file in pages_of_row(what) {
        all.push(minutes(course, file)?[0]);
    }
    let code = what.split('`').skip(1).step_by(2);
    for name in code.filter(|name| name.starts_with("lab") && name.contains('-')) {
        let exercise = course.exercises().find(|known| known.name == name);
        let exercise = exercise.ok_or_else(|| {
            let what = format!("a path names {name}, which is no exercise");
            BadInput::new(what, "give it the name that labs/labs.toml has")
        })?;
        all.push(exercise.minutes);
    }
    Ok((!all.is_empty()).then(|| all.iter().sum()))
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

/// A row of a timetable after its clock: minutes, who, and what.
pub fn clock_row(line: &str) -> Option<(usize, &str, &str)> {
    let (clock, cells) = line.strip_prefix("| ")?.split_once(' ')?;
    row(cells).filter(|_| clock.contains(':'))
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
}
