//! The ladder's scores: the reader's best of each rung beside ours, and what is possible.

use super::Workbook;
use super::command::command;
use super::progress::Progress;
use kit::Exercise;
use kit::show::Screen;
use ladder::picture::{self, Scores};
use ladder::{RUNGS, Rung, Score, best};

/// The whole picture. Runs all our programs, which takes a few seconds.
///
/// # Errors
/// If the reader's record cannot be read, or a program of ours fails.
pub fn picture(screen: &Screen, book: &Workbook) -> anyhow::Result<String> {
    let ladder = &book.course.ladder;
    let progress = Progress::read(&book.desk)?;
    let exercise = |rung: &Rung| ladder.exercises.iter().find(|one| one.name == rung.name);
    let is_solved = |rung: &&Rung| exercise(rung).is_some_and(|one| progress.has_solved(one));
    let runs = picture::runs()?;
    let mut scores = Vec::new();
    // The first run is that of one rank.
    for (rung, (word, ours)) in RUNGS.iter().zip(&runs[1..]) {
        scores.push(Scores {
            rung: word.clone(),
            yours: exercise(rung).and_then(|one| of_reader(&progress, one)),
            ours: ours.score(),
            best: best(rung)?,
        });
    }
    let solved = RUNGS.iter().filter(is_solved).count();
    let head = screen.heading(&ladder.title, &format!("{solved} of {} rungs", RUNGS.len()));
    let mut lines = vec![head, screen.wrap(&ladder.question, 0), String::new()];
    lines.push(picture::scores(screen, &scores));
    let legend = "Less is better. A solid bar is your best; a pale one is ours, where you have none yet. Your figures may be of \
                  different versions of your program. `best`: a bound for every program that divides the work in this way.";
    lines.push(format!("\n{}\n", screen.wrap(legend, 2)));
    lines.push(picture::steps(&runs).render(screen));
    lines.push(String::new());
    lines.push(match RUNGS.iter().find(|rung| !is_solved(rung)) {
        Some(next) => {
            let told = format!("{}: {}", next.name, next.gains);
            let typed = format!("{} check {}", command(), next.name);
            format!("{}\n{}", screen.row("next", &told), screen.row("", &typed))
        }
        None => screen.row("next", &format!("{} capstone", command())),
    });
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
    let [peak, sent, micros] = Score::FIGURES;
    Some([of(peak)?, of(sent)?, of(micros)?])
}
