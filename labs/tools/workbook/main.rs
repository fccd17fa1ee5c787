//! workbook: the exercises, from the map of the labs to the check of what you wrote.
//!
//! `cargo run --bin workbook` (or `cargo workbook`) shows the labs, the exercises that you have
//! solved, and the next step. `check` shows how much of an exercise is right, `hint` prints the
//! next hint, `watch` checks whenever you save, and `solution` prints ours. `doctor` says whether
//! the machine has what all of this needs. You write in your own folder, `my/`, which no other
//! program reads.

use anyhow::Result;
use clap::{Parser, Subcommand};
use kit::help;
use kit::show::{Screen, height_of_stdout};
use kit::{Course, Exercise};
use shardlab::allocator::Counting;
use shardlab::error::BadInput;
use shardlab::{files, launch, notice};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use workbook::dev::Dev;
use workbook::{self, Attempt, Desk, Document, Health, Outcome, Progress, Readers, Workbook, quiz};

/// The ladder's scores count what programs hold.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The exercises. Without a command it prints a map of the labs, with what you have solved and the
/// next step.
#[derive(Parser)]
#[command(name = "workbook", version)]
#[command(after_long_help = help::examples("workbook", &[
    ("", "the labs, what you have solved, and the next step"),
    ("check next", "check the exercise that comes next"),
    ("hint next", "one more hint for it"),
]))]
struct Args {
    #[command(subcommand)]
    command: Option<Action>,
    /// Print one JSON document and nothing else: your results, with those of a `check`, or those of
    /// a `report`
    #[arg(long, global = true, help_heading = help::OUTPUT)]
    json: bool,
    /// Draw with ASCII characters only
    #[arg(long, global = true, help_heading = help::OUTPUT)]
    ascii: bool,
}

#[derive(Subcommand)]
enum Action {
    /// Check an exercise. Give its name or the beginning of it, a lab (`lab03`) for the next one
    /// there, `next`, or `all` for all that you have begun
    Check {
        #[arg(default_value = "next")]
        name: String,
    },
    /// Print one more hint
    Hint {
        #[arg(default_value = "next")]
        name: String,
    },
    /// Print our solution, once you have solved the exercise or read all its hints
    Solution { name: String },
    /// Begin an exercise again. Your old file moves to my/old/
    Reset { name: String },
    /// Check an exercise whenever you save it
    Watch {
        #[arg(default_value = "next")]
        name: String,
    },
    /// Show the scores of the ladder: yours, ours, the library's, and the best that is possible
    Ladder,
    /// Train a GPT with your own solutions: your trainer. What you have not solved yet is the
    /// library's
    #[command(disable_help_flag = true)]
    Capstone {
        /// The trainer's own flags: --without PART, --steps N, --quick; --help lists them
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "FLAGS"
        )]
        flags: Vec<std::ffi::OsString>,
    },
    /// Serve the built book on this machine, so that its pages can run labs
    Serve {
        /// The book's folder: the one that `book build` makes, if you give none
        folder: Option<PathBuf>,
        #[arg(long, default_value_t = 8000)]
        port: u16,
        /// The address that may reach it: 127.0.0.1 is this machine alone, 0.0.0.0 is everyone in
        /// its network
        #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
        bind: std::net::IpAddr,
    },
    /// Say whether this machine has what labs and exercises need, and what to do where it has not
    Doctor {
        /// Also say whether it has what labs with MPI are built with
        #[arg(long)]
        mpi: bool,
    },
    /// Say which rank is missing in a job of PyTorch that stands, from the dumps of its flight
    /// recorder
    Explain {
        /// Dumps as pickle or JSON, and what `py-spy dump` printed: one file a rank, with its rank
        /// in the name (rank2.json)
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Put your results into the folder of a workshop, for its instructor. Your name there is
    /// SHARDLAB_NAME, or your user's
    Submit {
        /// The folder that the instructor named. With SHARDLAB_SUBMIT=DIR each check submits
        dir: PathBuf,
    },
    /// Make one table of the results in a folder, for the instructor of a workshop
    Report {
        dir: PathBuf,
        /// Keep the table fresh, until Ctrl-C
        #[arg(long)]
        watch: bool,
    },
    /// Questions about the labs, for the end. Without a terminal to answer in, they are listed
    Quiz {
        /// Print all questions, without their answers
        #[arg(long)]
        list: bool,
        /// Print all questions, with their answers and a sentence why
        #[arg(long, conflicts_with = "list")]
        answers: bool,
    },
    /// Print all exercises as one document, with solutions, debriefs and what goes wrong: for those
    /// who teach
    Solutions {
        /// You teach with it: do not give it to participants
        #[arg(long)]
        for_instructors: bool,
        /// Write the Markdown into this file, not to stdout
        file: Option<PathBuf>,
    },
    /// For those who write labs: CONTRIBUTING.md says when
    #[command(subcommand)]
    Dev(Dev),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => launch::main(|| Err(error)),
    }
}

fn run() -> Result<ExitCode> {
    let args = &kit::arguments::<Args>()?;
    let screen = Screen::detect(args.ascii);
    // The trainer has a --json of its own.
    let prints_a_document = matches!(
        args.command,
        None | Some(
            Action::Check { .. } | Action::Report { watch: false, .. } | Action::Capstone { .. }
        )
    );
    if args.json && !prints_a_document {
        let help = "leave --json out; the map, `check` and `report` print a document";
        return Err(BadInput::new("this command prints no JSON document", help).into());
    }
    match &args.command {
        None if args.json => tell(&screen, &Workbook::open()?, &[])?,
        None => screen.say(workbook::map(&screen, &Workbook::open()?)?),
        Some(Action::Check { name }) => return check(args, &screen, &Workbook::open()?, name),
        Some(Action::Hint { name }) => hint(&screen, &Workbook::open()?, name)?,
        Some(Action::Solution { name }) => {
            let workbook = Workbook::open()?;
            let exercise = workbook.course.find(name)?;
            screen.say(workbook::solution(&screen, &workbook, exercise)?);
        }
        Some(Action::Reset { name }) => {
            let workbook = Workbook::open()?;
            reset(&screen, &workbook, workbook.course.find(name)?)?;
        }
        Some(Action::Watch { name }) => {
            let workbook = Workbook::open()?;
            watch(&screen, &workbook, named(&workbook, name)?)?;
        }
        Some(Action::Explain { files }) => screen.say(workbook::explain(&screen, files)?),
        Some(Action::Submit { dir }) => {
            let workbook = Workbook::open()?;
            let document = document(&workbook, &[])?;
            let path = workbook::submit(dir, &workbook.desk, &document)?;
            let who = match document.who.as_str() {
                "" => "without a name (export SHARDLAB_NAME=…)".to_string(),
                who => format!("as {who:?}"),
            };
            screen.say(screen.row("submitted", &format!("{who}, in {}", path.display())));
            let always = format!("export {SUBMIT}={}", dir.display());
            screen.say(screen.row("", &format!("after each check, too:  {always}")));
        }
        Some(Action::Ladder) => screen.say(workbook::ladder(&screen, &Workbook::open()?)?),
        Some(Action::Capstone { .. }) => {
            // All words after its name are the trainer's, also those that this program knows.
            let words = std::env::args_os();
            let flags: Vec<_> = words.skip_while(|word| word != "capstone").skip(1).collect();
            return Ok(workbook::train(&screen, &Workbook::open()?, &flags)?);
        }
        Some(Action::Report { dir, watch }) => report(args, &screen, dir, *watch)?,
        Some(Action::Serve { folder, port, bind }) => {
            let folder = folder.clone().unwrap_or_else(workbook::built_book);
            workbook::serve(&screen, &folder, (*bind, *port).into())?;
        }
        Some(Action::Doctor { mpi }) => {
            // A success only if labs and exercises work on this machine.
            let health = Health::of_this_machine(*mpi);
            screen.say(health.render(&screen));
            return Ok(ExitCode::from(u8::from(!health.is_good())));
        }
        Some(Action::Solutions { for_instructors, file }) => {
            hand_out(&screen, *for_instructors, file.as_deref())?
        }
        Some(Action::Dev(dev)) => return dev.run(&screen),
        Some(Action::Quiz { list, answers }) => quiz(&screen, *list, *answers)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints all exercises with their solutions, or writes them into a file.
fn hand_out(screen: &Screen, for_instructors: bool, file: Option<&Path>) -> Result<()> {
    if !for_instructors {
        let what =
            "all solutions at once are for those who teach: a reader would know them before trying";
        let help = format!(
            "if you teach:  {0} solutions --for-instructors FILE; the solution of one exercise, after its hints:  {0} solution NAME",
            workbook::command()
        );
        return Err(BadInput::new(what, help).into());
    }
    let text = workbook::handout(&Course::read()?, &Desk::find()?)?;
    let Some(file) = file else {
        screen.say(text.trim_end());
        return Ok(());
    };
    files::replace(file, text.as_bytes()).map_err(|error| {
        let what = format!("cannot write {}: {error}", file.display());
        BadInput::new(what, "give a file in a folder that you can write, or none for stdout")
    })?;
    screen.say(screen.row("written", &file.display().to_string()));
    Ok(())
}

/// Asks the questions, or lists them.
fn quiz(screen: &Screen, list: bool, answers: bool) -> Result<()> {
    let questions = labs::questions()?;
    let extent = format!("{} questions about the labs", questions.len());
    screen.say(screen.heading(&extent, if answers { "with answers" } else { "" }));
    screen.say("");
    if !list && !answers && std::io::stdin().is_terminal() {
        return Ok(quiz::ask(screen, &questions, std::io::stdin().lock(), std::io::stdout())?);
    }
    screen.say(quiz::list(screen, &questions, answers));
    if !answers {
        let more = format!("{} quiz --answers", workbook::command());
        screen.say(format!("\n{}", screen.row("answers", &more)));
    }
    Ok(())
}

fn report(args: &Args, screen: &Screen, dir: &Path, watch: bool) -> Result<()> {
    let course = Course::read()?;
    let readers = Readers::read(&course, dir);
    if watch && dir.is_dir() {
        keep_fresh(screen, &course, dir, readers);
    }
    let readers = readers?;
    screen.say(if args.json {
        serde_json::to_string_pretty(&readers)?
    } else {
        readers.render(screen)
    });
    Ok(())
}

/// Shows the table of a room whenever it changes, until someone stops it. A room may be empty at
/// first.
fn keep_fresh(
    screen: &Screen,
    course: &Course,
    dir: &Path,
    mut readers: Result<Readers, BadInput>,
) -> ! {
    let mut shown = String::new();
    loop {
        let text = match readers {
            // The last line is for the words below.
            Ok(readers) => match height_of_stdout() {
                Some(height) => workbook::matrix(screen, &readers, height.saturating_sub(2)),
                None => readers.render(screen),
            },
            Err(error) => format!("{}\n{}", error.what, screen.dim(error.help)),
        };
        if text != shown {
            clear();
            screen.say(&text);
            screen.say(screen.dim("watching: the table changes with the room; Ctrl-C ends"));
            shown = text;
        }
        std::thread::sleep(Duration::from_secs(1));
        readers = Readers::read(course, dir);
    }
}

/// The exercise that `name` means: an exercise, the next one of a lab, or `next`. None if all of
/// these are solved.
fn named<'a>(workbook: &'a Workbook, name: &str) -> Result<Option<&'a Exercise>, BadInput> {
    if name == "next" {
        return workbook.next();
    }
    let mut labs = workbook.course.labs.iter();
    let lab = labs.find(|lab| lab.name == name && !lab.exercises.is_empty());
    if let Some(lab) = lab {
        return Ok(workbook.next_of(&lab.exercises)?.or(lab.exercises.first()));
    }
    if name == "ladder" {
        let rungs = &workbook.course.ladder.exercises;
        return Ok(workbook.next_of(rungs)?.or(rungs.first()));
    }
    workbook.course.find(name).map(Some)
}

/// Checks one exercise or all. The exit code is a success only if all checked exercises are solved.
fn check(args: &Args, screen: &Screen, workbook: &Workbook, name: &str) -> Result<ExitCode> {
    let all = name == "all";
    let exercises: Vec<&Exercise> = if all {
        workbook.course.exercises().collect()
    } else {
        named(workbook, name)?.into_iter().collect()
    };
    // In a document, rustc's messages are plain text, too.
    let screen = if args.json {
        Screen { ascii: args.ascii, ..Screen::plain() }
    } else {
        screen.clone()
    };
    let mut checks: Vec<(String, Attempt)> = Vec::new();
    for exercise in exercises {
        let new = !all && workbook.desk.begin(exercise)?;
        let attempt = workbook.check(&screen, exercise)?;
        if !args.json && attempt.outcome != Outcome::NotBegun {
            if !checks.is_empty() {
                screen.say("");
            }
            show(&screen, workbook, exercise, &attempt, new)?;
        }
        checks.push((exercise.name.clone(), attempt));
    }
    let solved = checks.iter().filter(|(_, attempt)| attempt.outcome == Outcome::Solved).count();
    hand_in(workbook);
    if args.json {
        tell(&screen, workbook, &checks)?;
    } else if checks.is_empty() {
        screen.say(workbook::map(&screen, workbook)?);
    } else if all {
        screen.say(format!(
            "\n{solved} of {} exercises are solved in their current version",
            checks.len()
        ));
    }
    Ok(ExitCode::from(u8::from(solved < checks.len())))
}

fn show(
    screen: &Screen,
    workbook: &Workbook,
    exercise: &Exercise,
    attempt: &Attempt,
    new: bool,
) -> Result<()> {
    screen.say(workbook::show_attempt(screen, workbook, exercise, attempt)?);
    if new {
        let file = workbook.desk.shown(&workbook.desk.mine(exercise));
        screen
            .say(screen.row("new", &format!("edit {}: it is a copy of the blank", file.display())));
    }
    Ok(())
}

/// The variable with a workshop's folder, into which each check puts the results.
const SUBMIT: &str = "SHARDLAB_SUBMIT";

/// Submits to the folder that the variable names, if it names one. A folder that cannot be reached
/// keeps nobody from going on.
fn hand_in(workbook: &Workbook) {
    let Some(dir) = std::env::var_os(SUBMIT).filter(|dir| !dir.is_empty()) else {
        return;
    };
    let submitted = document(workbook, &[])
        .and_then(|document| workbook::submit(Path::new(&dir), &workbook.desk, &document));
    if let Err(error) = submitted {
        notice::complain(&format!("note: {SUBMIT}: {}\nhelp: {}", error.what, error.help));
    }
}

/// Prints the reader's document.
fn tell(screen: &Screen, workbook: &Workbook, checks: &[(String, Attempt)]) -> Result<()> {
    screen.say(serde_json::to_string_pretty(&document(workbook, checks)?)?);
    Ok(())
}

fn document(workbook: &Workbook, checks: &[(String, Attempt)]) -> Result<Document, BadInput> {
    let progress = Progress::read(&workbook.desk)?;
    Document::new(&workbook.course, &workbook.desk, &progress, checks)
}

fn hint(screen: &Screen, workbook: &Workbook, name: &str) -> Result<()> {
    let Some(exercise) = named(workbook, name)? else {
        screen.say(workbook::map(screen, workbook)?);
        return Ok(());
    };
    let all = exercise.hints.len();
    let record = Progress::change(&workbook.desk, exercise, |record| {
        record.hints = (record.hints + 1).min(all)
    })?;
    screen.say(workbook::hints(screen, exercise, record.hints));
    Ok(())
}

fn reset(screen: &Screen, workbook: &Workbook, exercise: &Exercise) -> Result<()> {
    let kept = workbook.desk.reset(exercise)?;
    Progress::change(&workbook.desk, exercise, |record| *record = Default::default())?;
    let shown = |path: &std::path::Path| workbook.desk.shown(path).display().to_string();
    screen.say(format!("{} is a copy of the blank", shown(&workbook.desk.mine(exercise))));
    if let Some(old) = kept {
        screen.say(format!("your old file is {}", shown(&old)));
    }
    Ok(())
}

/// Checks an exercise, and then each exercise that the reader saves, until all are solved or the
/// reader stops.
fn watch(screen: &Screen, workbook: &Workbook, first: Option<&Exercise>) -> Result<()> {
    let mut known: BTreeMap<&str, Option<Version>> = workbook
        .course
        .exercises()
        .map(|exercise| (exercise.name.as_str(), version(workbook, exercise)))
        .collect();
    let mut current = first;
    while let Some(exercise) = current {
        let new = workbook.desk.begin(exercise)?;
        // Remember the version before the check, so a file that is saved during the check is
        // checked next.
        known.insert(&exercise.name, version(workbook, exercise));
        clear();
        let attempt = workbook.check(screen, exercise)?;
        show(screen, workbook, exercise, &attempt, new)?;
        hand_in(workbook);
        if attempt.outcome == Outcome::Solved {
            let Some(next) = workbook.next()? else {
                return Ok(());
            };
            if workbook.desk.begin(next)? {
                known.insert(&next.name, version(workbook, next));
            }
            let file = workbook.desk.shown(&workbook.desk.mine(next));
            screen.say(screen.row("", &format!("now edit {}", file.display())));
        }
        screen.say(screen.dim("\n  watching: save a file to check it; Ctrl-C ends"));
        current = Some(saved(workbook, &known));
    }
    screen.say(workbook::map(screen, workbook)?);
    Ok(())
}

/// The time at which a file was written, and its length.
type Version = (SystemTime, u64);

/// The version of the reader's file of an exercise.
fn version(workbook: &Workbook, exercise: &Exercise) -> Option<Version> {
    let data = workbook.desk.mine(exercise).metadata().ok()?;
    Some((data.modified().ok()?, data.len()))
}

/// Waits until an exercise has a new version that stays the same for two looks. Editors save in
/// several operations, and the file may be missing or incomplete for a while.
fn saved<'a>(workbook: &'a Workbook, known: &BTreeMap<&str, Option<Version>>) -> &'a Exercise {
    let mut last = known.clone();
    loop {
        std::thread::sleep(Duration::from_millis(150));
        for exercise in workbook.course.exercises() {
            let name = exercise.name.as_str();
            let now = version(workbook, exercise);
            if now.is_some() && now != known[name] && now == last[name] {
                return exercise;
            }
            last.insert(name, now);
        }
    }
}

/// Clears the terminal. In a file, begins a new paragraph.
fn clear() {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // From the first line on: erasing the whole screen would put it into the scrollback.
    let begin = if std::io::stdout().is_terminal() && !dumb {
        "\x1b[H\x1b[J"
    } else {
        "\n"
    };
    // If stdout cannot be written, the next line reports it.
    let mut out = std::io::stdout();
    out.write_all(begin.as_bytes()).and_then(|()| out.flush()).ok();
}
