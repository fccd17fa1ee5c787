//! The compiler and the linker of exercises. Where a check fails because of them, it is told as
//! that, and nobody's file is blamed.

use super::command::command;
use super::room::Room;
use kit::show::bytes_binary;
use shardlab::error::BadInput;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The crates that a check may use. A reader's file uses the first two alone.
pub(super) const CRATES: [&str; 6] = ["shardlab", "ladder", "kit", "lab09", "lab11", "capstone"];

/// The rustc that has compiled this program, as `rustc --version` names it. The library in its
/// compiled form is for that one alone.
pub(super) const BUILT_BY: &str = env!("BUILT_BY");

/// The compiler, and what links its programs.
#[derive(Clone, Debug)]
pub(super) struct Toolchain {
    pub rustc: OsString,
    /// Where it is from, for people.
    pub from: &'static str,
    /// What links programs here, for people.
    pub linker: &'static str,
    /// Arguments with which rustc links by itself.
    linking: Option<PathBuf>,
}

impl Toolchain {
    /// The compiler: the one that the variable RUSTC names, or else the one of this program's room,
    /// or else the first on PATH. A room's linker is for machines without a C compiler.
    pub fn find() -> Toolchain {
        let room = Room::of_this_program();
        let given = std::env::var_os("RUSTC").filter(|rustc| !rustc.is_empty());
        let brought = room.as_ref().and_then(Room::rustc);
        let (rustc, from) = match (given, brought) {
            (Some(rustc), _) => (rustc, "RUSTC names it"),
            (None, Some(rustc)) => (rustc.into(), "beside the build"),
            (None, None) => ("rustc".into(), "on PATH"),
        };
        let linking = room.and_then(|room| room.linking());
        let linking = linking.filter(|_| on_path("cc").is_none());
        Toolchain {
            rustc,
            from,
            linker: if linking.is_some() {
                "the build's own linker"
            } else {
                "cc"
            },
            linking,
        }
    }

    /// rustc, ready to link programs here.
    pub fn command(&self) -> Command {
        let mut rustc = Command::new(&self.rustc);
        if let Some(arguments) = &self.linking {
            let mut at = OsString::from("@");
            at.push(arguments);
            rustc.arg(at);
        }
        rustc
    }

    /// The error if rustc cannot be started.
    pub fn cannot_start(&self, error: &std::io::Error) -> BadInput {
        BadInput::new(
            format!("cannot start {}: {error}", self.rustc.display()),
            format!(
                "exercises are compiled by {BUILT_BY}: put it on PATH, as rustup does, or export RUSTC=its path; {}",
                ask_the_doctor()
            ),
        )
    }
}

/// The path of a program on PATH.
pub(super) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = Path::new(program).with_extension(std::env::consts::EXE_EXTENSION);
    std::env::split_paths(&path)
        .map(|folder| folder.join(&program))
        .find(|path| path.is_file())
}

/// Where a person finds out more.
pub(super) fn ask_the_doctor() -> String {
    format!("`{} doctor` looks at this machine", command())
}

/// Why rustc has failed, if neither the reader's file nor the check is the reason. `file` is the
/// one that it compiled, as rustc's messages name it.
pub(super) fn failure(status: ExitStatus, text: &str, file: &str) -> Option<BadInput> {
    if status.success() {
        return None;
    }
    let text = without_colour(text);
    let refuse = |what: String, help: &str| {
        Some(BadInput::new(what, format!("{help}; {}", ask_the_doctor())))
    };
    // Lines of the reader's code have a number and a bar in front of them.
    let mut own = text.lines().filter(|line| !line.contains(" | "));
    let full = ["No space left on device", "Disk quota exceeded"];
    if let Some(line) = own.clone().find(|line| full.iter().any(|full| line.contains(full))) {
        let help = "checks are built in the folder for temporary files: free some of it, or choose a different one:  export TMPDIR=…";
        return refuse(format!("the compiler has no room to write: {}", line.trim()), help);
    }
    let unlinked = |line: &str| {
        let from = line.find("linker `").or_else(|| line.find("linking with `"))?;
        line.contains("error").then(|| line[from..].to_string())
    };
    if let Some(message) = own.find_map(unlinked) {
        let help = "a check needs a C linker, such as gcc or clang: install one (Debian: apt install gcc; Mac: xcode-select --install), or load its module (module load gcc)";
        return refuse(format!("rustc cannot link a program here: {message}"), help);
    }
    // The library was compiled by a different rustc, or for a different machine, or a part of it is
    // missing.
    let other = ["E0460", "E0461", "E0462", "E0514"].map(|code| format!("[{code}]"));
    let has_other = other.iter().any(|code| text.contains(code));
    // Of several versions of a crate none fits the others.
    let mut given = CRATES.iter().chain(&["std"]);
    let without = given.any(|name| text.contains(&format!("can't find crate for `{name}`")));
    if has_other || without || text.contains("` which `") && text.contains("[E0463]") {
        let what = format!("rustc cannot use the compiled library:\n{}", text.trim_end());
        let help = format!(
            "it was compiled by {BUILT_BY}: use that one (export RUSTC=its path), or build the workbook again (cargo build --bin workbook)"
        );
        return refuse(what, &help);
    }
    // rustc ends with 1 for errors in a file, and names their place in it.
    if status.code() == Some(1) && (text.contains("-->") || text.contains(file)) {
        return None;
    }
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let first = lines().find(|line| line.contains("error")).or(lines().next());
    let help = "this is the compiler's own failure, unless it happens with this file only (a very deep expression can do it)";
    refuse(
        format!(
            "rustc ended without an answer ({status}): {}",
            first.unwrap_or("it said nothing").trim()
        ),
        help,
    )
}

/// The text without the codes that colour it.
fn without_colour(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, text)| text))
}

/// Why a check that ended by itself says nothing about the reader's code, if it does not: it never
/// began, or there is no room left to write what it finds.
pub(super) fn silence(began: bool, finished: bool, printed: &str, out: &Path) -> Option<BadInput> {
    const LEAST: u64 = 64 << 10;
    let free = super::disk::free(out);
    if !finished && free.is_some_and(|free| free < LEAST) {
        let what = format!(
            "there is no room for what the check finds: {} are free in {}",
            bytes_binary(free.unwrap_or_default() as f64),
            out.display()
        );
        let help = "free some, or choose a different folder for temporary files:  export TMPDIR=…";
        return Some(BadInput::new(what, help));
    }
    if began {
        return None;
    }
    let said = printed.trim();
    let said = if said.is_empty() { "it said nothing" } else { said };
    Some(BadInput::new(
        format!("the check did not begin: {said}"),
        format!("your code has not run yet; {}", ask_the_doctor()),
    ))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn told(code: i32, text: &str) -> Option<String> {
        let failure = failure(ExitStatus::from_raw(code << 8), text, "my/a.rs");
        failure.map(|failure| failure.to_string())
    }

    #[test]
    fn errors_in_the_readers_file_are_the_readers() {
        let error = "error[E0308]: mismatched types\n --> my/a.rs:2:5\n  |\n2 |     x\n";
        assert_eq!(told(1, error), None);
        assert_eq!(told(1, &error.replace("error", "\x1b[1m\x1b[91merror\x1b[0m")), None);
        assert_eq!(told(1, "error: couldn't read `my/a.rs`: not UTF-8"), None);
        let quoted = "error[E0425]: cannot find value\n --> my/a.rs:2:5\n  |\n2 | no(\"error: linker `cc`: No space left on device\")\n";
        assert_eq!(told(1, quoted), None, "a line of code is no message");
        assert_eq!(told(0, "warning: No space left on device"), None);
    }

    #[test]
    fn what_the_machine_lacks_is_the_machines() {
        for (code, text, what, help) in [
            (
                1,
                "error: linker `cc` not found\n  |\n  = note: No such file",
                "rustc cannot link a program here: linker `cc` not found",
                "module load gcc",
            ),
            (
                1,
                "\x1b[1m\x1b[91merror\x1b[0m: linking with `cc` failed: exit status: 1",
                "rustc cannot link a program here: linking with `cc` failed",
                "a C linker",
            ),
            (
                127,
                "rustc: error while loading shared libraries: libLLVM.so.22: cannot open",
                "rustc ended without an answer (exit status: 127): rustc: error while loading",
                "the compiler's own failure",
            ),
            (
                101,
                "error: the compiler unexpectedly panicked. this is a bug.\n --> my/a.rs:1:1",
                "rustc ended without an answer (exit status: 101): error: the compiler",
                "doctor` looks at this machine",
            ),
            (
                1,
                "error: rustup could not choose a version of rustc to run",
                "rustc ended without an answer (exit status: 1): error: rustup could not",
                "doctor` looks at this machine",
            ),
            (
                1,
                "error: failed to write /tmp/x/lib.rmeta: No space left on device (os error 28)",
                "the compiler has no room to write: error: failed to write",
                "export TMPDIR=",
            ),
            (
                1,
                "error[E0514]: found crate `shardlab` compiled by an incompatible version of rustc\n --> my/a.rs:1:5",
                "rustc cannot use the compiled library:\nerror[E0514]",
                BUILT_BY,
            ),
            (
                1,
                "error[E0463]: can't find crate for `std`\n  |\n  = note: the target may not be installed",
                "rustc cannot use the compiled library:",
                BUILT_BY,
            ),
            (
                1,
                "error[E0463]: can't find crate for `kit`\n --> labs/lab03/checks/a.rs:4:5",
                "rustc cannot use the compiled library:",
                "cargo build --bin workbook",
            ),
            (
                1,
                "error[E0463]: can't find crate for `gemm` which `shardlab` depends on\n --> my/a.rs:1:5",
                "rustc cannot use the compiled library:",
                BUILT_BY,
            ),
        ] {
            let told = told(code, text).unwrap_or_default();
            assert!(told.starts_with(what) && told.contains(help), "{text}: {told}");
        }
        let killed = failure(ExitStatus::from_raw(9), "", "my/a.rs").unwrap().what;
        assert_eq!(killed, "rustc ended without an answer (signal: 9 (SIGKILL)): it said nothing");
        assert_eq!(told(1, "error[E0463]: can't find crate for `foo`\n --> my/a.rs:1:1"), None);
    }

    #[test]
    fn a_check_that_never_began_blames_nobody() {
        let here = std::env::temp_dir();
        let never = silence(false, false, "error while loading shared libraries\n", &here).unwrap();
        assert_eq!(never.what, "the check did not begin: error while loading shared libraries");
        assert_eq!(silence(true, false, "", &here), None);
    }
}
