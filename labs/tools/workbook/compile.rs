//! From the reader's file to a program: two calls of rustc, about a second together.
//!
//! The reader's file becomes a crate named `exercise`. The check becomes a program, linked with
//! that crate and with this library, whose compiled form lies near the workbook's program. So
//! nothing of the package is built again, and Cargo is not needed: an editor that holds Cargo's
//! lock does not block a check, and a mistake in the reader's file breaks no build.

use super::child::{self, End, Limits};
use super::desk::Desk;
use super::shared_build::SharedBuild;
use super::toolchain::{self, CRATES, Toolchain};
use kit::show::Screen;
use shardlab::error::BadInput;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The library in its compiled form.
#[derive(Clone, Debug)]
pub(super) struct Library {
    /// The compiled forms of `CRATES`.
    crates: Vec<PathBuf>,
    /// The folder with all compiled crates.
    folder: PathBuf,
    toolchain: Toolchain,
}

/// A program that uses the reader's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    pub name: &'a str,
    pub file: &'a Path,
    /// Whether the reader's files are optimized. A check runs for a moment, and its slow work is in
    /// the library: optimizing would take longer than it saves.
    pub optimized: bool,
}

/// The outcome of compiling the reader's file and its check.
pub(super) enum Compiled {
    /// The program that checks it, and the compiler's warnings.
    Program(PathBuf, String),
    /// rustc's errors in the reader's file.
    NotYours(String),
    /// rustc took too much or too long, for the reader's file or for the check with it.
    Ended,
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
        let now = SystemTime::now();
        let (folder, built, help) = match SharedBuild::of_this_program() {
            Some(room) => (
                room.library(),
                now,
                "the build is incomplete: its owner starts labs/cluster/build.sh again",
            ),
            None => {
                let program = std::env::current_exe().unwrap_or_default();
                let built = program.metadata().and_then(|data| data.modified()).unwrap_or(now);
                let help = "start the workbook where Cargo has built it, in its target folder";
                (program.with_file_name("deps"), built, help)
            }
        };
        let crates = chosen(&compiled_in(&folder), built).ok_or_else(|| {
            let what = format!("the compiled library is not in {}", folder.display());
            BadInput::new(what, help)
        })?;
        Ok(Library { crates, folder, toolchain: Toolchain::find() })
    }

    /// Compiles files of the reader's, each as a crate with a name, and the program that uses them,
    /// into `out`. Messages contain paths as the reader would type them.
    pub fn link(
        &self,
        screen: &Screen,
        desk: &Desk,
        yours: &[(String, PathBuf)],
        ours: Program,
        out: &Path,
        limits: Limits,
    ) -> Result<Compiled, BadInput> {
        let mut program = self.rustc(screen, out, &CRATES);
        let mut warnings = String::new();
        for (of_crate, file) in yours {
            let file = desk.shown(file);
            let mut rustc = self.rustc(screen, out, &CRATES[..2]);
            if ours.optimized {
                rustc.args(["-C", "opt-level=3"]);
            }
            rustc.args(["--crate-name", of_crate, "--crate-type", "rlib"]).arg(&file);
            match run(&self.toolchain, rustc, &file, limits)? {
                (End::Exit(status), text) if status.success() => warnings += &text,
                (End::Exit(_), errors) => return Ok(Compiled::NotYours(errors)),
                _ => return Ok(Compiled::Ended),
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
            _ => Compiled::Ended,
        })
    }

    fn rustc(&self, screen: &Screen, out: &Path, uses: &[&str]) -> Command {
        let mut rustc = self.toolchain.command();
        rustc.args(["--edition", "2024", "-C", "codegen-units=1", "-C", "strip=debuginfo"]);
        rustc.args(["--color", if screen.colour { "always" } else { "never" }]);
        rustc.arg(format!("--diagnostic-width={}", screen.width));
        for (name, file) in uses.iter().zip(&self.crates) {
            rustc.arg("--extern").arg(format!("{name}={}", file.display()));
        }
        rustc.arg("-L").arg(format!("dependency={}", self.folder.display()));
        rustc.arg("--out-dir").arg(out);
        rustc
    }
}

/// Runs rustc on `file`. Returns how it ended, and its messages.
pub(super) fn run(
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

/// Compiled crates in a folder, the oldest first. Empty if it cannot be read.
fn compiled_in(folder: &Path) -> Vec<(PathBuf, SystemTime)> {
    let mut compiled = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "rlib") {
            let written = entry.metadata().and_then(|data| data.modified());
            compiled.push((path, written.unwrap_or(SystemTime::UNIX_EPOCH)));
        }
    }
    compiled.sort_by_key(|(_, time)| *time);
    compiled
}

/// The compiled forms of `CRATES`. Of several versions of a crate, a program was linked with the
/// newest that is older than it. If there is none, something else has been built since: the newest
/// fits that, and rustc finds out whether all fit each other.
fn chosen(compiled: &[(PathBuf, SystemTime)], built: SystemTime) -> Option<Vec<PathBuf>> {
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
    Some(crates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
        let of_shardlab =
            |compiled: &[_], built| Some(chosen(compiled, at(built))?[0].display().to_string());
        assert_eq!(of_shardlab(&compiled, 3).unwrap(), "deps/libshardlab-own.rlib");
        assert_eq!(of_shardlab(&compiled, 9).unwrap(), "deps/libshardlab-new.rlib");
        assert_eq!(of_shardlab(&compiled, 0).unwrap(), "deps/libshardlab-new.rlib");
        compiled.retain(|(path, _)| !path.display().to_string().contains("kit"));
        assert_eq!(of_shardlab(&compiled, 3), None);
    }
}
