//! A lab's run, and its first and last lines on the screen, from `labs/labs.toml`.

use super::labs_toml::{Course, Lab};
use crate::commands::command;
use crate::process::mistake;
use crate::show::{Screen, above};
use anyhow::{Result, ensure};
use shardlab::comm::{Comm, Options};
use shardlab::error::BadInput;
use shardlab::launch;

/// Runs a lab on `ranks` ranks. `one_rank` returns the errors of failed checks; rank 0's decide.
pub fn run(
    ranks: usize,
    options: &Options,
    one_rank: impl Fn(Comm) -> Result<Vec<String>> + Sync,
) -> Result<()> {
    let failed = launch::run_with(ranks, options, one_rank)?;
    ensure_passed(&failed[0])
}

/// An error if a check has failed.
pub fn ensure_passed(failed: &[String]) -> Result<()> {
    ensure!(failed.is_empty(), "{}", joined(failed));
    Ok(())
}

/// Errors in one line, up to one that has a help: what follows that is an error of its own.
fn joined(failed: &[String]) -> String {
    let mut text = String::new();
    let mut between = "";
    for error in failed {
        text += between;
        text += error;
        between = if error.contains("\nhelp: ") { "\nerror: " } else { "; " };
    }
    text
}

/// One lab, and the lab that comes after it.
pub struct Lesson {
    pub lab: Lab,
    pub next: Option<Lab>,
}

impl Lesson {
    /// The lab called `name`.
    pub fn of(name: &str) -> Result<Lesson, BadInput> {
        let mut labs = Course::read()?.labs.into_iter().skip_while(|lab| lab.name != name);
        let Some(lab) = labs.next() else {
            return Err(BadInput::new(
                format!("labs/labs.toml has no lab named {name}"),
                "add it there",
            ));
        };
        Ok(Lesson { lab, next: labs.next() })
    }

    /// Title, time and question, and an empty line; then the mistake, if one is made on purpose. If
    /// a run takes an unusual time, `time` replaces the lab's.
    pub fn heading(&self, screen: &Screen, time: Option<&str>) -> String {
        let Lab { name, title, question, takes, .. } = &self.lab;
        let about = format!("about {takes}");
        let heading =
            screen.heading(&format!("{name}{}{title}", screen.separator()), time.unwrap_or(&about));
        let heading = format!("{heading}\n{}\n", screen.wrap(question, 0));
        let Some([name, sentence]) = mistake::made() else {
            return heading;
        };
        let title = screen.bold(format!("What goes wrong: {name}"));
        format!("{heading}\n{title}\n{}\n", screen.wrap(sentence, 2))
    }

    /// An empty line, the takeaway, `more` if there is any, and the next lab, or the exercises
    /// after the last one.
    pub fn ending(&self, screen: &Screen, more: &str) -> String {
        let mut lines =
            vec![String::new(), screen.wrap(&format!("Takeaway: {}", self.lab.takeaway), 2)];
        lines.extend((!more.is_empty()).then(|| screen.wrap(more, 2)));
        let (next, program) = match &self.next {
            Some(Lab { name, announced, .. }) => (format!("Next: {name}, {announced}"), &**name),
            None => ("Next: the exercises".to_string(), "workbook"),
        };
        let command = command(program);
        let line = format!("  {next}   {command}");
        if line.chars().count() <= screen.width {
            lines.push(line);
        } else {
            // A command stays whole, so that it can be copied.
            lines.extend([screen.wrap(&next, 2), screen.wrap(&command, 4)]);
        }
        let text = lines.join("\n");
        match above::line(text.lines().count(), 0) {
            Some(above) => format!("{text}\n{}", screen.wrap(&above, 2)),
            None => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_help_is_an_error_of_its_own() {
        let all = |failed: &[&str]| {
            let failed: Vec<String> = failed.iter().map(|error| error.to_string()).collect();
            ensure_passed(&failed).unwrap_err().to_string()
        };
        assert_eq!(all(&["losses differ", "bytes differ"]), "losses differ; bytes differ");
        assert_eq!(
            all(&[
                "losses differ",
                "cannot write to a\nhelp: free some space",
                "nor to b\nhelp: x"
            ]),
            "losses differ; cannot write to a\nhelp: free some space\nerror: nor to b\nhelp: x"
        );
    }

    #[test]
    fn the_next_lab_is_announced_and_after_the_last_the_exercises() {
        let screen = Screen { ascii: true, ..Screen::plain() };
        let ends = |name: &str| {
            Lesson::of(name)
                .unwrap()
                .ending(&screen, "")
                .lines()
                .last()
                .unwrap()
                .to_string()
        };
        assert_eq!(
            ends("lab01"),
            "  Next: lab02, ranks that train together.   cargo run --bin lab02"
        );
        let course = Course::read().unwrap();
        assert_eq!(
            ends(&course.labs[course.labs.len() - 1].name),
            "  Next: the exercises   cargo run --bin workbook"
        );
        assert!(course.labs[1..].iter().all(|lab| lab.announced.ends_with(['.', '?'])));
        for lab in &course.labs {
            let lesson = Lesson::of(&lab.name).unwrap();
            let lines = [lesson.heading(&screen, None), lesson.ending(&screen, "")].join("\n");
            assert!(lines.lines().all(|line| line.is_ascii() && line.len() <= 80), "{lines}");
        }
        assert!(Lesson::of("lab99").is_err());
    }
}
