//! The reader's own trainer: the solved exercises, compiled into one program that trains a GPT.
//!
//! Each part of the trainer is an exercise. A solved one becomes a crate, and its adapter in
//! `labs/capstone/adapters/` gives it to the trainer. What is not solved yet is the library's.

use super::Workbook;
use super::attempt::Outcome;
use super::child::{self, End, Limits};
use super::command::command;
use super::compile::{Compiled, Program};
use super::progress::{self, Progress};
use capstone::Part;
use kit::Exercise;
use kit::show::Screen;
use shardlab::error::BadInput;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The trainer needs a minute. What never ends must end all the same.
const LIMITS: Limits = Limits {
    computing: Duration::from_secs(30 * 60),
    // Its lives are processes of their own, and it only waits for them.
    idle: Duration::from_secs(60 * 60),
    memory: 8 << 30,
};

/// Builds the reader's trainer and runs it with `flags`. Its exit code is the trainer's.
///
/// # Errors
/// If a part does not compile as a part, or the program cannot be built or started.
pub fn run(screen: &Screen, book: &Workbook, flags: &[OsString]) -> Result<ExitCode, BadInput> {
    // With --json the trainer prints one document, and nothing may stand before it.
    let quiet = flags.iter().any(|flag| flag == "--json");
    let yours = solved(screen, book, quiet)?;
    let refuse = |what: &str, error: std::io::Error| {
        let help = "it is built in the folder for temporary files; choose a different one:  export TMPDIR=…";
        BadInput::new(format!("cannot {what}: {error}"), help)
    };
    let out =
        tempfile::tempdir().map_err(|error| refuse("make a folder for the trainer", error))?;
    let main = out.path().join("trainer.rs");
    std::fs::write(&main, program(book, &yours))
        .map_err(|error| refuse("write the trainer's program", error))?;
    let files: Vec<(String, PathBuf)> = yours
        .iter()
        .map(|(_, exercise)| (crate_of(exercise), book.desk.mine(exercise)))
        .collect();
    let ours = Program { name: "trainer", file: &main, optimized: true };
    let compiled = book.library.link(screen, &book.desk, &files, ours, out.path(), LIMITS)?;
    let program = match compiled {
        Compiled::Program(program, _) => program,
        Compiled::NotYours(errors) | Compiled::NotTheCheck(errors) => {
            let what = format!("your parts do not make a trainer:\n{}", errors.trim_end());
            let help = format!("check them all again:  {} check all", command());
            return Err(BadInput::new(what, help));
        }
        Compiled::Ended => {
            return Err(BadInput::new(
                "the compiler did not come to an end",
                "does a file of yours include a file, or build a constant, without an end?",
            ));
        }
    };
    let mut program = Command::new(program);
    program.args(flags).env_remove("RUST_BACKTRACE");
    program.env(capstone::CALLED, format!("{} capstone", command()));
    let end =
        child::show(&mut program, LIMITS).map_err(|error| refuse("start the trainer", error))?;
    match end {
        End::Exit(status) => Ok(status
            .code()
            .map_or(ExitCode::FAILURE, |code| ExitCode::from(u8::try_from(code).unwrap_or(1)))),
        _ => Err(BadInput::new(
            "the trainer took more than 8 GiB of memory, or did not come to an end",
            "leave your parts out one by one, to see which does it:  --without PART",
        )),
    }
}

/// The parts that the reader has solved, as their files are now. Files that have changed since
/// their last check are checked.
fn solved<'a>(
    screen: &Screen,
    book: &'a Workbook,
    quiet: bool,
) -> Result<Vec<(Part, &'a Exercise)>, BadInput> {
    let progress = Progress::read(&book.desk)?;
    let mut solved = Vec::new();
    for part in Part::ALL {
        let exercise = book.course.find(part.exercise())?;
        let Some(now) = progress::hash(&book.desk.mine(exercise)) else {
            continue;
        };
        let record = progress.of(exercise);
        let is_solved = if record.checked.as_ref() == Some(&now) {
            record.solution.as_ref() == Some(&now)
        } else {
            book.check(screen, exercise)?.outcome == Outcome::Solved
        };
        if is_solved {
            solved.push((part, exercise));
        } else if record.solution.is_some() && !quiet {
            // A part that was the reader's is not replaced silently.
            let told = "your file has changed and no longer passes, so the library's part runs";
            screen.say(screen.row("checked", &format!("{}: {told}", exercise.name)));
        }
    }
    Ok(solved)
}

/// The name of the crate that an exercise becomes: `lab01_ring`.
fn crate_of(exercise: &Exercise) -> String {
    exercise.name.replace('-', "_")
}

/// The trainer's program: the library's parts, and in their place those of the reader.
fn program(book: &Workbook, yours: &[(Part, &Exercise)]) -> String {
    let adapters = book.desk.root.join("labs/capstone/adapters");
    let mut modules = String::new();
    let mut takes = String::new();
    let mut have = Vec::new();
    for (part, _) in yours {
        let word = part.name();
        let file = adapters.join(format!("{word}.rs"));
        // A `String` cannot refuse to be written.
        writeln!(modules, "#[path = {:?}]\nmod {word};", file.display().to_string()).ok();
        writeln!(takes, "    {word}::take(&mut parts);").ok();
        have.push(format!("Part::{part:?}"));
    }
    format!(
        "use capstone::{{Part, Parts}};\n{modules}\nfn main() -> std::process::ExitCode {{\n    let mut parts = Parts::library();\n{takes}    \
         let have: &[Part] = &[{}];\n    capstone::main(parts, have)\n}}\n",
        have.join(", ")
    )
}
