//! The compiler and the linker of exercises. Where a check fails because of them, it is told as
//! that, and nobody's file is blamed.

use super::command::command;
use super::shared_build::SharedBuild;
use kit::show::plain;
use shardlab::error::BadInput;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The crates that a check may use. A reader's file uses the first two alone.
pub(super) const CRATES: [&str; 8] =
    ["shardlab", "ladder", "kit", "lab08", "lab09", "shapes", "planner", "capstone"];

/// The rustc that has compiled this program, as `rustc --version` names it. The library in its
/// compiled form is for that one alone.
pub(super) const BUILT_BY: &str = env!("BUILT_BY");

/// The compiler, and what links its programs.
#[derive(Clone, Debug)]
pub(super) struct Toolchain {
    rustc: OsString,
    /// Arguments with which rustc links by itself.
    linking: Vec<String>,
}

impl Toolchain {
    /// The compiler: the one that the variable RUSTC names, or else the one of this program's
    /// shared build, or else the first on PATH. A shared build's linker is for machines without a C
    /// compiler.
    pub fn find() -> Toolchain {
        let shared = SharedBuild::of_this_program();
        let given = std::env::var_os("RUSTC").filter(|rustc| !rustc.is_empty());
        let brought = || shared.as_ref().and_then(SharedBuild::rustc).map(OsString::from);
        let rustc = given.or_else(brought).unwrap_or("rustc".into());
        let linking = match (shared, on_path("cc")) {
            (Some(shared), None) => shared.linking(),
            _ => Vec::new(),
        };
        Toolchain { rustc, linking }
    }

    /// rustc, ready to link programs here.
    pub fn command(&self) -> Command {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(&self.linking);
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
    let text = plain(text);
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let (what, help) = if says(&["No space left on device", "Disk quota exceeded"]) {
        (
            "the compiler has no room to write",
            "checks are built in the folder for temporary files: free some of it, or choose a different one:  export TMPDIR=…".into(),
        )
    } else if says(&["error: linker `", "error: linking with `"]) {
        (
            "rustc cannot link a program here",
            "a check needs a C linker, such as gcc or clang: install one (Debian: apt install gcc; Mac: xcode-select --install), or load its module (module load gcc)".into(),
        )
    } else if says(&["[E0460]", "[E0461]", "[E0462]", "[E0463]", "[E0514]"]) {
        // It was compiled by a different rustc, or for a different machine, or a part is missing.
        (
            "rustc cannot use the compiled library",
            format!(
                "it was compiled by {BUILT_BY}: use that one (export RUSTC=its path), or build the workbook again (cargo build --bin workbook)"
            ),
        )
    } else if status.code() == Some(1) && (text.contains("-->") || text.contains(file)) {
        // rustc ends with 1 for errors in a file, and names their place in it.
        return None;
    } else {
        (
            "rustc ended without an answer",
            "this is the compiler's own failure, unless it happens with this file only (a very deep expression can do it)".into(),
        )
    };
    let said = text.lines().find(|line| line.contains("error")).or(text.lines().next());
    let said = said.unwrap_or("it said nothing").trim();
    Some(BadInput::new(
        format!("{what} ({status}): {said}"),
        format!("{help}; {}", ask_the_doctor()),
    ))
}

/// The error if a check said nothing about the reader's code, because it never began.
pub(super) fn not_begun(printed: &str) -> BadInput {
    let said = printed.trim();
    let said = if said.is_empty() { "it said nothing" } else { said };
    BadInput::new(
        format!("the check did not begin: {said}"),
        format!("your code has not run yet; {}", ask_the_doctor()),
    )
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
        assert_eq!(told(1, "error: couldn't read `my/a.rs`: not UTF-8"), None);
    }

    #[test]
    fn what_the_machine_lacks_is_the_machines() {
        for (code, text, what, help) in [
            (
                1,
                "\x1b[1m\x1b[91merror\x1b[0m: linking with `cc` failed: exit status: 1",
                "rustc cannot link a program here (exit status: 1): error: linking with `cc`",
                "module load gcc",
            ),
            (
                1,
                "error: failed to write /tmp/x/lib.rmeta: No space left on device (os error 28)",
                "the compiler has no room to write (exit status: 1): error: failed to write",
                "export TMPDIR=",
            ),
            (
                1,
                "error[E0514]: found crate `shardlab` compiled by an incompatible version of rustc\n --> my/a.rs:1:5",
                "rustc cannot use the compiled library (exit status: 1): error[E0514]",
                BUILT_BY,
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
        ] {
            let told = told(code, text).unwrap_or_default();
            assert!(told.starts_with(what) && told.contains(help), "{text}: {told}");
        }
        let killed = failure(ExitStatus::from_raw(9), "", "my/a.rs").unwrap().what;
        assert_eq!(killed, "rustc ended without an answer (signal: 9 (SIGKILL)): it said nothing");
    }
}
