//! Commands on screens, as they work where this program was started.
//!
//! Texts are written with Cargo's: `cargo run --bin lab01 -- --rounds`. A reader who started a
//! program of a shared build has no Cargo, and types `$SHARDLAB_BIN/lab01 --rounds`.

use std::path::Path;

/// Cargo's command, in front of a program's name.
const CARGO: &str = "cargo run --bin ";

/// The command in a shared build.
const ROOM: &str = "$SHARDLAB_BIN/";

/// The command that starts one of the project's programs, for instance `cargo run --bin lab01`. For
/// flags after it, write Cargo's command into the text and use [`commands`].
pub fn command(name: &str) -> String {
    let start = if from_shardlab_bin() { ROOM } else { CARGO };
    format!("{start}{name}")
}

/// A text with all commands of the form `cargo run --bin NAME` or
/// `cargo run --bin NAME -- ARGUMENTS` as they work here.
pub fn commands(text: &str) -> String {
    if from_shardlab_bin() {
        of_shared_build(text)
    } else {
        text.to_string()
    }
}

/// Whether this program is in the folder that the variable SHARDLAB_BIN names, and not started by
/// Cargo.
pub fn from_shardlab_bin() -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let program = std::env::current_exe().unwrap_or_default();
    variable("CARGO").is_none()
        && variable("SHARDLAB_BIN").is_some_and(|bin| is_in(&program, Path::new(&bin)))
}

/// Whether a program is in a folder. Either may be a link.
fn is_in(program: &Path, folder: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    program
        .parent()
        .is_some_and(|here| real(here).is_some() && real(here) == real(folder))
}

/// A text with the commands of a shared build.
fn of_shared_build(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(CARGO) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        written += &format!("{before}{ROOM}{name}");
        // Cargo needs ` --` in front of a program's own arguments.
        rest = match after.strip_prefix(" --") {
            Some(arguments) if !arguments.starts_with(|c| is_name(c) || c == '-') => arguments,
            _ => after,
        };
    }
    written + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_a_shared_build_is_in_its_folder() {
        let room = tempfile::tempdir().unwrap();
        let bin = room.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let lab = bin.join("lab03");
        assert!(is_in(&lab, &bin) && is_in(&lab, &bin.join("../bin")));
        assert!(
            !is_in(&lab, room.path()) && !is_in(&room.path().join("no/lab03"), Path::new("no"))
        );
    }

    #[test]
    fn commands_in_a_text_lose_cargo_and_keep_their_arguments() {
        let text = "Run `cargo run --bin lab01 -- --rounds`, then cargo run --bin lab08.\n| `cargo run --bin lab04 --` |";
        assert_eq!(
            of_shared_build(text),
            "Run `$SHARDLAB_BIN/lab01 --rounds`, then $SHARDLAB_BIN/lab08.\n| `$SHARDLAB_BIN/lab04` |"
        );
        let ends = "cargo run --bin lab01";
        assert_eq!(of_shared_build(ends), "$SHARDLAB_BIN/lab01", "the text ends with the command");
        assert_eq!(
            of_shared_build("cargo run --bin lab01 --release"),
            "$SHARDLAB_BIN/lab01 --release"
        );
        let other = "cargo run --features llm --bin lab10";
        assert_eq!(of_shared_build(other), other, "this needs another build");
    }
}
