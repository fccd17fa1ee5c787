//! What labs show: `tests/screens/labNN.txt` has commands and their screens, and
//! `transcript.rs` says which marks they may have.
//!
//! A lab's commands run one after the other in one folder, so that one may continue what another
//! has saved. A last line `[exit 1]` is the exit code, where it is not 0.
//! `SCREENS=lab03 cargo test --test all -- screens::` writes that file anew, `SCREENS=all` each: a
//! new case is its command alone. What depends on the machine and not on the run (its name, its
//! cores, its speed) is marked by hand.

use super::transcript;
use crate::suite::program::{ROOT, program, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a command prints in a folder, and its exit code.
fn screen(folder: &Path, command: &str, portable: bool) -> String {
    let mut words = command.split_whitespace();
    let mut command = Command::new(program(words.next().expect("a program")));
    command
        .args(words)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "0")
        .env_remove("COLUMNS")
        .env_remove("SHARDLAB_CORPUS")
        // Tiles have bits of their own.
        .env("SHARDLAB_SIMD", if portable { "portable" } else { "vectors" });
    let output = command.output().unwrap();
    let said = stdout(&output) + &stderr(&output);
    match output.status.code() {
        Some(0) => said,
        Some(code) => format!("{}\n[exit {code}]", said.trim_end()),
        None => panic!("{command:?} ended with {}\n{said}", output.status),
    }
}

/// The files of a folder, one for each lab.
fn files(folder: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
    let mut files: Vec<_> = all.map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.is_file());
    files.sort();
    files
}

const FILES: &str = "tests/screens";
/// Commands that take seconds.
const SLOW: &str = "tests/screens/slow";

#[test]
fn labs_show_what_the_files_show() {
    compare(FILES);
}

#[test]
#[ignore = "converts the files of 768 ranks: the gate runs it; run it when you change lab09"]
fn slow_commands_show_what_the_files_show() {
    compare(SLOW);
}

fn compare(folder: &str) {
    let writes = std::env::var("SCREENS").unwrap_or_default();
    transcript::each(files(folder), |file| {
        let folder = tempfile::tempdir().unwrap();
        let overwrites = writes == "all" || file.file_stem().unwrap() == &*writes;
        transcript::check(&file, overwrites, |command, portable| {
            screen(folder.path(), command, portable)
        });
    });
}

/// A screen has 80 columns at most. Errors and notes come last, on stderr, and the reader's
/// terminal folds them.
#[test]
fn no_screen_is_wider_than_a_terminal() {
    for file in [files(FILES), files(SLOW)].concat() {
        let text = std::fs::read_to_string(file).unwrap();
        let mut is_screen = false;
        for line in text.lines() {
            if line.starts_with("$ ") {
                is_screen = true;
                continue;
            }
            is_screen &= !["error: ", "note: "].iter().any(|begins| line.starts_with(begins));
            // A mark may be longer than what it stands for.
            let has_mark = line.contains("[..]") || line.contains(" to ") && line.contains('[');
            assert!(!is_screen || has_mark || line.chars().count() <= 80, "{line}");
        }
    }
}
