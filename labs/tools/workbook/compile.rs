//! From the reader's file to a program: two calls of rustc, about a second together.
//!
//! The reader's file becomes a crate named `exercise`. The check becomes a program, linked with
//! that crate and with this library, whose compiled form lies near the workbook's program. So
//! nothing of the package is built again, and Cargo is not needed: an editor that holds Cargo's
//! lock does not block a check, and a mistake in the reader's file breaks no build.

use super::child::{self, End, Limits};
use super::desk::Desk;
use super::room::Room;
use super::toolchain::{self, CRATES, Toolchain};
use kit::show::Screen;
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// The library in its compiled form.
#[derive(Clone, Debug)]
pub(super) struct Library {
    /// The compiled forms of `CRATES`.
    crates: Vec<PathBuf>,
    /// All folders with compiled crates.
    folders: Vec<PathBuf>,
    pub toolchain: Toolchain,
}

/// A program that uses the reader's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub name: &'a str,
    pub file: &'a Path,
    pub fast: Fast,
}

/// What should be fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fast {
    /// A check runs for a moment, and its slow work is in the library: optimizing would take longer
    /// than it saves.
    Compiler,
    /// The time of the reader's code is compared with the library's.
    Program,
}

/// The longest wait of rustc for the reader's file. No linker runs then, so what it waits for
/// without computing is a file that never ends, such as a pipe that the code includes.
const WAIT: Duration = Duration::from_secs(20);

/// The outcome of compiling the reader's file and its check.
pub(super) enum Compiled {
    /// The program that checks it, and the compiler's warnings.
    Program(PathBuf, String),
    /// rustc's errors in the reader's file.
    NotYours(String),
    /// rustc took too much or too long, for the reader's file or for the check with it.
    Ended(End),
    /// rustc's errors where the check calls the reader's code: the exercise's functions or types
    /// have changed.
    NotTheCheck(String),
}

impl Library {
    /// The library that this program was built with.
    pub fn find() -> Result<Library, BadInput> {
        if cfg!(feature = "mpi") {
            // Its programs are linked with libraries whose paths only Cargo knows.
            let help = "exercises run on threads: build the workbook without --features mpi, in a separate target folder";
            return Err(BadInput::new("this workbook was built with MPI", help));
        }
        let program = std::env::current_exe().unwrap_or_default();
        let toolchain = Toolchain::find();
        if let Some(room) = Room::of_this_program() {
            let compiled = compiled_in(&room.library());
            let missing = || {
                BadInput::new(
                    format!("the compiled library is not in {}", room.library().display()),
                    "the build is incomplete: its owner starts labs/cluster/build.sh again",
                )
            };
            return Library::among(&compiled, SystemTime::now(), toolchain).ok_or_else(missing);
        }
        let built = program
            .metadata()
            .and_then(|data| data.modified())
            .unwrap_or_else(|_| SystemTime::now());
        let compiled = compiled_in(program.parent().unwrap_or(Path::new(".")));
        Library::among(&compiled, built, toolchain).ok_or_else(|| {
            BadInput::new(
                format!("the compiled library is not near {}", program.display()),
                "start the workbook where Cargo has built it, in its target folder",
            )
        })
    }

    /// Of several versions of a crate, a program was linked with the newest that is older than it.
    /// If there is none, something else has been built since: the newest fits that, and rustc finds
    /// out whether all fit each other.
    fn among(
        compiled: &[(PathBuf, SystemTime)],
        built: SystemTime,
        toolchain: Toolchain,
    ) -> Option<Library> {
        let mut crates = Vec::new();
        for name in CRATES {
            let begins = format!("lib{name}-");
            let is_named = |path: &Path| {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                file.starts_with(&begins)
            };
            let mut versions = compiled.iter().rev().filter(|(path, _)| is_named(path));
            let newest = versions.clone().next()?;
            let (path, _) = versions.find(|(_, time)| *time <= built).unwrap_or(newest);
            crates.push(path.clone());
        }
        let mut folders: Vec<PathBuf> = Vec::new();
        for (path, _) in compiled {
            folders.extend(path.parent().map(Into::into));
        }
        folders.sort();
        folders.dedup();
        Some(Library { crates, folders, toolchain })
    }

    /// The folder of the library itself.
    pub fn folder(&self) -> PathBuf {
        self.crates[0].parent().unwrap_or(Path::new(".")).to_path_buf()
    }

    /// Compiles the reader's file and the check into `out`. Messages contain paths as the reader
    /// would type them.
    pub fn compile(
        &self,
        screen: &Screen,
        desk: &Desk,
        [mine, check]: [&Path; 2],
        out: &Path,
        limits: Limits,
    ) -> Result<Compiled, BadInput> {
        let check = Program { name: "check", file: check, fast: Fast::Compiler };
        self.link(screen, desk, &[("exercise", mine)], check, out, limits)
    }

    /// Compiles files of the reader's, each as a crate with a name, and the program that uses them.
    pub fn link(
        &self,
        screen: &Screen,
        desk: &Desk,
        yours: &[(&str, &Path)],
        ours: Program,
        out: &Path,
        limits: Limits,
    ) -> Result<Compiled, BadInput> {
        let of_yours = of_yours(limits);
        let mut program = self.rustc(screen, out, &CRATES);
        let mut warnings = String::new();
        for (of_crate, file) in yours {
            let file = desk.shown(file);
            let mut rustc = self.rustc(screen, out, &CRATES[..2]);
            if ours.fast == Fast::Program {
                rustc.args(["-C", "opt-level=3"]);
            }
            rustc.args(["--crate-name", of_crate, "--crate-type", "rlib"]).arg(&file);
            match run(&self.toolchain, rustc, &file, of_yours)? {
                (End::Exit(status), text) if status.success() => warnings += &text,
                (End::Exit(_), errors) => return Ok(Compiled::NotYours(errors)),
                (end, _) => return Ok(Compiled::Ended(end)),
            }
            let compiled = out.join(format!("lib{of_crate}.rlib"));
            program.arg("--extern").arg(format!("{of_crate}={}", compiled.display()));
        }
        let file = desk.shown(ours.file);
        program.arg("--crate-name").arg(ours.name);
        program.args(["--crate-type", "bin"]).arg(&file);
        Ok(match run(&self.toolchain, program, &file, limits)? {
            (End::Exit(status), _) if status.success() => Compiled::Program(
                out.join(ours.name).with_extension(std::env::consts::EXE_EXTENSION),
                warnings,
            ),
            (End::Exit(_), errors) => Compiled::NotTheCheck(errors),
            (end, _) => Compiled::Ended(end),
        })
    }

    fn rustc(&self, screen: &Screen, out: &Path, uses: &[&str]) -> Command {
        let mut rustc = self.toolchain.command();
        rustc.args([
            "--edition",
            "2024",
            "-C",
            "codegen-units=1",
            "-C",
            "strip=debuginfo",
            "--color",
        ]);
        rustc.arg(if screen.colour { "always" } else { "never" });
        rustc.arg(format!("--diagnostic-width={}", screen.width));
        for (name, file) in uses.iter().zip(&self.crates) {
            rustc.arg("--extern").arg(format!("{name}={}", file.display()));
        }
        for folder in &self.folders {
            rustc.arg("-L").arg(format!("dependency={}", folder.display()));
        }
        rustc.arg("--out-dir").arg(out);
        rustc
    }
}

/// The limits of rustc for the reader's file, where those of the whole compilation are `limits`.
fn of_yours(limits: Limits) -> Limits {
    Limits { idle: limits.idle.min(WAIT), ..limits }
}

/// Runs rustc on `file`. Returns how it ended, and its messages.
fn run(
    toolchain: &Toolchain,
    mut rustc: Command,
    file: &Path,
    limits: Limits,
) -> Result<(End, String), BadInput> {
    let (end, text) =
        child::run(&mut rustc, limits).map_err(|error| toolchain.cannot_start(&error))?;
    // What follows is not the reader's mistake.
    if let End::Exit(status) = end
        && let Some(failure) = toolchain::failure(status, &text, &file.display().to_string())
    {
        return Err(failure);
    }
    Ok((end, text))
}

/// Compiled crates below a folder, the oldest first.
fn compiled_in(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let mut compiled = Vec::new();
    // None of Cargo's layouts puts a compiled crate deeper than deps/ or build/PACKAGE/HASH/out/.
    compiled_crates(folder, 5, &mut compiled);
    compiled.sort_by_key(|(_, time)| *time);
    compiled
}

/// Compiled crates below a folder, with the times at which they were written.
fn compiled_crates(folder: &Path, depth: usize, found: &mut Vec<(PathBuf, SystemTime)>) {
    // Unreadable folders are skipped.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(data)) = (entry.path(), entry.metadata()) else {
            continue;
        };
        if data.is_dir() && depth > 1 && entry.file_name() != "incremental" {
            compiled_crates(&path, depth - 1, found);
        } else if path.extension().is_some_and(|ending| ending == "rlib") {
            found.push((path, data.modified().unwrap_or(SystemTime::UNIX_EPOCH)));
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        computing: Duration::from_secs(60),
        idle: Duration::from_secs(600),
        running: Duration::from_secs(600),
        memory: 4 << 30,
        output: 1 << 20,
    };

    /// How rustc ends that compiles `code` as a library.
    fn compiled(code: &str, limits: Limits) -> (End, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("code.rs");
        std::fs::write(&file, code).unwrap();
        let mut rustc = Command::new("rustc");
        rustc.args(["--crate-type", "rlib", "--out-dir"]).arg(folder.path()).arg(file);
        run(&Toolchain::find(), rustc, Path::new("code.rs"), limits).unwrap()
    }

    #[test]
    fn the_compiler_ends_by_itself_where_it_can() {
        assert!(
            matches!(compiled("pub fn f() {}", LIMITS), (End::Exit(status), text) if status.success() && text.is_empty())
        );
        let (end, text) = compiled("pub fn f() -> u8 { }", LIMITS);
        assert!(
            matches!(end, End::Exit(status) if !status.success()) && text.contains("E0308"),
            "{end:?} {text}"
        );
    }

    /// Of a crate's versions the program's own is taken; something else may have been built since.
    #[test]
    fn the_library_is_the_programs_or_the_newest() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut compiled: Vec<(PathBuf, SystemTime)> = Vec::new();
        for (version, time) in [("old", 1), ("own", 2), ("new", 4)] {
            for name in CRATES {
                compiled.push((format!("deps/lib{name}-{version}.rlib").into(), at(time)));
            }
        }
        let of_shardlab = |compiled: &[_], built| {
            let library = Library::among(compiled, at(built), Toolchain::find())?;
            Some(library.crates[0].display().to_string())
        };
        assert_eq!(of_shardlab(&compiled, 3).unwrap(), "deps/libshardlab-own.rlib");
        assert_eq!(of_shardlab(&compiled, 9).unwrap(), "deps/libshardlab-new.rlib");
        assert_eq!(of_shardlab(&compiled, 0).unwrap(), "deps/libshardlab-new.rlib");
        compiled.retain(|(path, _)| !path.display().to_string().contains("kit"));
        assert_eq!(of_shardlab(&compiled, 3), None);
    }

    #[test]
    fn a_file_that_fills_the_memory_is_not_compiled_to_the_end() {
        let code = "pub static ALL: &[u8] = include_bytes!(\"/dev/zero\");";
        let (end, text) = compiled(code, Limits { memory: 500 << 20, ..LIMITS });
        assert!(matches!(end, End::TooLarge), "{end:?} {text}");
    }

    #[test]
    fn a_pipe_that_nobody_writes_is_not_waited_for_without_an_end() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let code = format!("pub static ALL: &[u8] = include_bytes!({pipe:?});");
        let short = Limits { idle: Duration::from_secs(2), ..LIMITS };
        let (end, text) = compiled(&code, of_yours(short));
        assert!(matches!(end, End::Stuck), "{end:?} {text}");
        assert_eq!((of_yours(LIMITS).idle, LIMITS.idle), (WAIT, 30 * WAIT));
    }

    #[test]
    fn a_constant_without_an_end_is_not_computed_for_ever() {
        let code = "#![allow(long_running_const_eval)] pub const N: u8 = loop {};";
        let (end, text) = compiled(code, Limits { computing: Duration::from_secs(2), ..LIMITS });
        assert!(matches!(end, End::TooLong), "{end:?} {text}");
    }
}
