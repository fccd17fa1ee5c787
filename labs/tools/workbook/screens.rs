//! The reader's screens: the map of the workbook, a check, hints.

use super::Workbook;
use super::attempt::{Attempt, Outcome};
use super::command::command;
use super::progress::{Progress, Record, Standing, hash};
use capstone::Part;
use kit::Exercise;
use kit::check::{Figure, Row};
use kit::commands;
use kit::show::{Screen, counted, table, thousands};
use ladder::picture;
use shardlab::error::BadInput;

/// The labs and exercises, the solved ones, and the next step.
pub fn map(screen: &Screen, book: &Workbook) -> Result<String, BadInput> {
    let progress = Progress::read(&book.desk)?;
    let next = book.next()?;
    let all = book.course.exercises().count();
    let solved = book.course.exercises().filter(|exercise| progress.has_solved(exercise)).count();
    let open = book
        .course
        .exercises()
        .filter(|exercise| !exercise.optional && !progress.has_solved(exercise));
    let minutes: usize = open.map(|exercise| exercise.minutes).sum();
    let left = if minutes > 0 {
        format!(", {minutes} min to go")
    } else {
        String::new()
    };
    let mut lines = vec![
        screen.heading(
            "shardlab: the workbook",
            &format!("{solved} of {all} exercises solved{left}"),
        ),
        screen.wrap(
            "How large models are trained on many devices: run a lab, then write its heart.",
            0,
        ),
    ];
    for lab in &book.course.labs {
        let title = format!("{}{}{}", lab.name, screen.separator(), lab.title);
        lines.push(String::new());
        lines.push(screen.heading(&title, &format!("{} to run", lab.takes)));
        for exercise in &lab.exercises {
            lines.push(line(screen, book, &progress, exercise, next));
            for best in &progress.of(exercise).figures {
                lines.push(format!("      {}", figure(screen, "best", best)));
            }
        }
    }
    let ladder = &book.course.ladder;
    lines.push(String::new());
    lines.push(screen.heading(&ladder.title, &format!("{} ladder: the scores", command())));
    for rung in &ladder.exercises {
        lines.push(line(screen, book, &progress, rung, next));
    }
    let parts = Part::ALL.map(|part| book.course.find(part.exercise()));
    let yours = parts.iter().flatten().filter(|part| progress.has_solved(part)).count();
    lines.push(String::new());
    lines.push(screen.heading("Your own trainer", &format!("{} capstone", command())));
    let told =
        format!("{yours} of its {} parts are yours; the others are the library's", parts.len());
    lines.push(screen.dim(format!("    {told}")));
    lines.push(String::new());
    lines.push(match next {
        Some(next) => next_step(screen, book, next),
        None => screen.row(
            "next",
            "nothing: all exercises are solved. You can still try the labs' --break flags.",
        ),
    });
    Ok(lines.join("\n"))
}

/// An exercise's line on the map.
fn line(
    screen: &Screen,
    book: &Workbook,
    progress: &Progress,
    exercise: &Exercise,
    next: Option<&Exercise>,
) -> String {
    let is_next = next.is_some_and(|next| next.name == exercise.name);
    let standing = progress.standing(&book.desk, exercise);
    let minutes = exercise.minutes;
    let told = match (standing, progress.of(exercise).tries) {
        (Standing::Open, _) if exercise.optional => format!("optional, {minutes} min"),
        (Standing::Open, _) => format!("{minutes} min"),
        (Standing::Begun, 0) => "begun".into(),
        (Standing::Begun, tries) => counted(tries, "try", "tries"),
        (Standing::Solved, _) => "solved".into(),
    };
    let [solved, going, open] = screen.either(["✓", "▸", "·"], ["x", ">", "-"]);
    let mark = match standing {
        Standing::Solved => screen.good(solved),
        Standing::Open if !is_next => open.into(),
        Standing::Begun | Standing::Open => going.into(),
    };
    let kind = if exercise.broken { "repair: " } else { "" };
    let left = format!("{:<19} {kind}{}", exercise.name, exercise.title);
    let room = screen.width.saturating_sub(6 + left.chars().count());
    let left = if is_next { screen.bold(left) } else { left };
    format!("  {mark} {left}  {}", screen.dim(format!("{told:>room$}")))
}

/// The next steps, as the reader can type them.
fn next_step(screen: &Screen, book: &Workbook, next: &Exercise) -> String {
    let lab = book
        .course
        .labs
        .iter()
        .find(|lab| lab.exercises.iter().any(|exercise| exercise.name == next.name));
    let file = book.desk.shown(&book.desk.mine(next));
    let mut steps = vec![
        format!("start this, and leave it running:  {} watch", command()),
        format!("edit {}: saving it checks it", file.display()),
    ];
    if let Some(lab) = lab.filter(|lab| lab.exercises[0].name == next.name) {
        steps.insert(0, format!("run its lab:  {}", commands::command(&lab.name)));
    }
    let mut lines = vec![
        screen
            .row("next", &format!("{}, about {} minutes: {}", next.name, next.minutes, next.task)),
    ];
    // Each step is on one line, however long, so that readers can copy its command.
    for (i, step) in steps.iter().enumerate() {
        lines.push(format!("           {}. {step}", i + 1));
    }
    lines.join("\n")
}

/// A check and its result.
pub fn attempt(
    screen: &Screen,
    book: &Workbook,
    exercise: &Exercise,
    attempt: &Attempt,
) -> Result<String, BadInput> {
    let record = Progress::read(&book.desk)?.of(exercise);
    let file = book.desk.shown(&book.desk.mine(exercise)).display().to_string();
    let mut lines = vec![screen.heading(&title(screen, exercise), &file)];
    if !attempt.compiler.is_empty() {
        // rustc's messages stay as they are.
        lines.push(format!("\n{}\n", attempt.compiler.trim_end()));
    }
    for finding in &attempt.findings {
        match finding.holds {
            Some(holds) => lines.push(screen.check(holds, &finding.claim, "")),
            None => lines.push(screen.dim(screen.row("then", &finding.claim))),
        }
        if finding.holds == Some(false) {
            if !finding.rows.is_empty() {
                lines.push(format!("\n{}", comparison(screen, &finding.rows)));
            }
            let means = if untouched(book, exercise) {
                SYMPTOM
            } else {
                &attempt.means
            };
            lines.push(format!("\n{}", screen.row("means", means)));
            if attempt.findings.last().is_some_and(|last| last.holds.is_none()) {
                lines.push(String::new());
            }
        }
    }
    if attempt.outcome != Outcome::Solved && attempt.stuck_at().is_empty() {
        lines.push(screen.row("means", &attempt.means));
    }
    let printed = not_in_table(attempt);
    if !printed.is_empty() {
        lines.push(quoted(screen, &printed));
    }
    if !attempt.tracks.is_empty() {
        lines.push(format!("\n{}", picture::beside(screen, &attempt.tracks)));
    }
    // The lines before may already end with a blank line.
    let blank = lines.last().is_some_and(|line| line.ends_with('\n'));
    if !blank {
        lines.push(String::new());
    }
    lines.extend(ending(screen, book, exercise, attempt, &record)?);
    Ok(lines.join("\n"))
}

/// Shown instead of the cause until the reader has changed the file.
const SYMPTOM: &str = "This is the symptom: the people who ran this code saw nothing else. Find the cause. Once you have changed \
                       the code, the check says more.";

/// Whether the exercise is broken on purpose, and the reader has changed nothing.
fn untouched(book: &Workbook, exercise: &Exercise) -> bool {
    exercise.broken && hash(&book.desk.mine(exercise)) == hash(&book.desk.blank(exercise))
}

/// An exercise's name and title.
fn title(screen: &Screen, exercise: &Exercise) -> String {
    format!("{}{}{}", exercise.name, screen.separator(), exercise.title)
}

/// What the reader's code has printed, without a rank's error that the table shows as what it got.
fn not_in_table(attempt: &Attempt) -> Vec<&str> {
    let wrong = attempt.findings.iter().filter(|finding| finding.holds == Some(false));
    let got: Vec<&str> = wrong
        .flat_map(|finding| &finding.rows)
        .flat_map(|row| row.got.lines().map(str::trim))
        .collect();
    let is_shown = |line: &&str| {
        got.contains(&line.trim().trim_start_matches("error: ")) && line.contains("failed: ")
    };
    attempt.printed.trim_end().lines().filter(|line| !is_shown(line)).collect()
}

/// The end of the output of the reader's code, because a failure is near the end.
fn quoted(screen: &Screen, lines: &[&str]) -> String {
    const MOST: usize = 12;
    let last = &lines[lines.len().saturating_sub(MOST)..];
    let which = if last.len() < lines.len() {
        format!(", the last {MOST} of {} lines", lines.len())
    } else {
        String::new()
    };
    format!(
        "\n{}\n{}",
        screen.row("printed", &format!("by your code{which}:")),
        screen.quote(&last.join("\n"), 11)
    )
}

/// The last lines after a check, with the next steps.
fn ending(
    screen: &Screen,
    book: &Workbook,
    exercise: &Exercise,
    attempt: &Attempt,
    record: &Record,
) -> Result<Vec<String>, BadInput> {
    if attempt.outcome != Outcome::Solved {
        let all = exercise.hints.len();
        let hints = match record.hints.min(all) {
            0 => format!("there are {all}"),
            read if read < all => format!("{read} of {all} read"),
            _ => "you have read them all".into(),
        };
        let more = format!("{} hint {}   ({hints})", command(), exercise.name);
        return Ok(vec![screen.row("hints", &more)]);
    }
    let hints = counted(record.hints.min(exercise.hints.len()), "hint", "hints");
    let told = format!("after {}, with {hints}", counted(record.tries, "try", "tries"));
    let mut lines = vec![screen.row("solved", &told)];
    for got in &attempt.figures {
        lines.push(screen.row("", &figure(screen, "yours", got)));
    }
    let missed = attempt.figures.iter().any(|figure| figure.got > figure.target);
    if missed {
        lines.push(screen.row("", "Correct, but less is possible: the map keeps your best."));
        if !attempt.means.is_empty() {
            lines.push(screen.row("", &attempt.means));
        }
    }
    // A rung's three figures are hard to meet all at once, and its debrief does not depend on them.
    if !missed || exercise.lab() == "ladder" {
        lines.push(screen.row("", &exercise.debrief));
    }
    lines.push(screen.row("ours", &format!("{} solution {}", command(), exercise.name)));
    // A reader in a lab, or on the ladder, goes on there.
    let here = book.course.exercises().filter(|other| other.lab() == exercise.lab());
    lines.push(match book.next_of(here)?.or(book.next()?) {
        Some(next) => screen.row("next", &format!("{0}: {1} check {0}", next.name, command())),
        None => screen.row("next", "nothing: all exercises are solved"),
    });
    Ok(lines)
}

/// The expected and the actual values that disagree, side by side.
fn comparison(screen: &Screen, rows: &[Row]) -> String {
    const MOST: usize = 8;
    let disagree = || rows.iter().filter(|row| !row.agrees);
    let wrong = disagree().count();
    let cells = |row: &Row| {
        vec![row.at.clone(), row.expected.clone(), format!("{} {}", row.got, screen.cross())]
    };
    let cells: Vec<Vec<String>> = disagree().take(MOST).map(cells).collect();
    let mut text = table(screen, &["where", "expected", "yours"], &cells);
    if rows.len() > cells.len() {
        text += &format!("\n  {wrong} of {} comparisons disagree", rows.len());
    }
    text
}

fn figure(screen: &Screen, whose: &str, figure: &Figure) -> String {
    let Figure { what, got, target } = figure;
    let mark = if got <= target {
        format!(" {}", screen.tick())
    } else {
        String::new()
    };
    format!("{what}: {whose} {}, target {}{mark}", thousands(*got), thousands(*target))
}

/// Our solution, for readers who have solved the exercise or read all its hints.
pub fn solution(screen: &Screen, book: &Workbook, exercise: &Exercise) -> Result<String, BadInput> {
    let progress = Progress::read(&book.desk)?;
    let left = exercise.hints.len().saturating_sub(progress.of(exercise).hints);
    if left > 0 && !progress.has_solved(exercise) {
        let what = format!(
            "the solution of {} comes after its hints: {}",
            exercise.name,
            counted(left, "is", "are")
        );
        let help = format!("read the next one:  {} hint {}", command(), exercise.name);
        return Err(BadInput::new(format!("{what} left"), help));
    }
    let path = book.desk.solution(exercise);
    let file = book.desk.shown(&path).display().to_string();
    let code = std::fs::read_to_string(&path).map_err(|error| {
        BadInput::new(
            format!("cannot read {file}: {error}"),
            "restore it with git: git checkout labs",
        )
    })?;
    let heading = screen.heading(&title(screen, exercise), &file);
    Ok(format!("{heading}\n\n{}", code.trim_end()))
}

/// The first `read` hints, the newest one first.
pub fn hints(screen: &Screen, exercise: &Exercise, read: usize) -> String {
    let all = exercise.hints.len();
    let read = read.min(all);
    let mut lines =
        vec![screen.heading(&title(screen, exercise), &format!("hint {read} of {all}"))];
    let mut newest_first = exercise.hints.iter().enumerate().take(read).rev();
    if let Some((i, hint)) = newest_first.next() {
        lines.push(screen.row(&format!("{}", i + 1), hint));
    }
    let more = if read < all { "hint" } else { "solution" };
    lines.push(screen.row("more", &format!("{} {more} {}", command(), exercise.name)));
    if read > 1 {
        lines.push(String::new());
        lines.push(screen.dim(screen.row("before", "hints that you have read, the newest first:")));
    }
    for (i, hint) in newest_first {
        lines.push(screen.dim(screen.row(&format!("{}", i + 1), hint)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempt::Finding;

    #[test]
    fn an_error_in_the_table_is_not_printed_again() {
        let row = |got: &str| Row {
            at: "the ranks".into(),
            expected: "exchange".into(),
            got: got.into(),
            agrees: false,
        };
        let attempt = Attempt {
            findings: vec![Finding {
                claim: "copies go there and come back".into(),
                holds: Some(false),
                rows: vec![row("rank 0 failed: it sends 12 elements"), row("12")],
                shows: Vec::new(),
            }],
            printed: "12\nrank 0 failed: it sends 12 elements\nrank 1 failed: another\n".into(),
            ..Attempt::new(Outcome::DoesNotFit, "")
        };
        assert_eq!(not_in_table(&attempt), ["12", "rank 1 failed: another"]);
    }
}
