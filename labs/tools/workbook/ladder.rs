//! The ladder's scores: the reader's best of each rung beside ours, the library's, and what is possible.

use super::Workbook;
use super::command::command;
use super::progress::Progress;
use kit::Exercise;
use kit::show::Screen;
use ladder::picture::{self, Scores};
use ladder::{CLOCK, RUNGS, Run, Rung};

/// The figures of a rung's check, in the order in which they are drawn.
const FIGURES: [&str; 3] = [
    "peak bytes per rank",
    "bytes sent per rank and step",
    "microseconds per step on a slow link",
];

/// The whole picture. Runs all our programs, which takes a few seconds.
///
/// # Errors
/// If the reader's record cannot be read, or a program of ours fails.
pub fn picture(screen: &Screen, book: &Workbook) -> anyhow::Result<String> {
    let ladder = &book.course.ladder;
    let progress = Progress::read(&book.desk)?;
    let rungs: Vec<(&Exercise, &Rung)> = ladder
        .exercises
        .iter()
        .filter_map(|exercise| Some((exercise, Rung::of(&exercise.name)?)))
        .collect();
    let solved = |exercise: &&(&Exercise, &Rung)| progress.has_solved(exercise.0);
    let count = rungs.iter().filter(solved).count();
    let mut scores = Vec::new();
    let mut runs: Vec<(String, Run)> = Vec::new();
    let one = RUNGS[0].on_one_rank()?;
    runs.push(("one rank".into(), one));
    for (exercise, rung) in &rungs {
        let word = exercise.name.trim_start_matches("ladder-").to_string();
        let ours = ladder::run(rung.job, rung.ours)?;
        scores.push(Scores {
            rung: word.clone(),
            yours: of_reader(&progress, exercise),
            ours: ours.score(),
            library: ladder::run(rung.job, rung.library)?.score(),
            best: rung.best(),
        });
        runs.push((word, ours));
    }
    let head = screen.heading(&ladder.title, &format!("{count} of {} rungs", rungs.len()));
    let mut lines = vec![head, screen.wrap(&ladder.question, 0), String::new()];
    lines.push(picture::scores(screen, &scores));
    let legend = "Less is better. A full bar is your best; an outline is ours, where you have no solution yet. `library`: the way \
                  in which a library does it. `best`: what no program can do better that divides the work in this way.";
    lines.push(format!("\n{}\n", screen.wrap(legend, 2)));
    lines.push(picture::steps(screen, &runs, &CLOCK));
    lines.push(String::new());
    for (exercise, rung) in rungs.iter().filter(|rung| !progress.has_solved(rung.0)).take(1) {
        let next = format!("{}: {}   {} check ladder", exercise.name, rung.gains, command());
        lines.push(screen.row("next", &next));
    }
    if count == rungs.len() && count > 0 {
        lines.push(screen.row("next", &format!("{} capstone", command())));
    }
    Ok(lines.join("\n"))
}

/// The reader's best figures, if the rung is solved.
fn of_reader(progress: &Progress, exercise: &Exercise) -> Option<[u64; 3]> {
    let record = progress.of(exercise);
    record.solution.as_ref()?;
    let of = |what: &str| {
        let figure = record.figures.iter().find(|figure| figure.what == what)?;
        Some(figure.got)
    };
    Some([of(FIGURES[0])?, of(FIGURES[1])?, of(FIGURES[2])?])
}
