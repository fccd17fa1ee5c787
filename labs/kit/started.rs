//! Commands on screens, as they work where this program was started.
//!
//! Texts are written with Cargo's: `cargo run --bin lab01 -- --rounds`. A reader who started a
//! program of a room's build has no Cargo, and types `$SHARDLAB_BIN/lab01 --rounds`.

use std::path::{Path, PathBuf};

/// What starts a program, in front of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Started {
    Cargo,
    /// The program is in the folder that the variable SHARDLAB_BIN names.
    ShardlabBin,
    /// By its path, as the user has typed it. Empty: the shell has found it on PATH.
    Path(PathBuf),
}

/// The command that starts one of the project's programs, for instance `cargo run --bin lab01`. For
/// flags after it, write Cargo's command into the text and use [`commands`].
pub fn command(name: &str) -> String {
    Started::this().command(name)
}

/// A text with all commands of the form `cargo run --bin NAME` or
/// `cargo run --bin NAME -- ARGUMENTS` as they work here.
pub fn commands(text: &str) -> String {
    Started::this().commands(text)
}

/// Whether this program is in the folder that the variable SHARDLAB_BIN names, and not started by
/// Cargo.
pub fn from_shardlab_bin() -> bool {
    Started::this() == Started::ShardlabBin
}

impl Started {
    fn this() -> Started {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let program = std::env::current_exe().unwrap_or_default();
        let typed = std::env::args_os().next().unwrap_or_default();
        Started::decide(
            &program,
            Path::new(&typed),
            variable("CARGO").is_some(),
            variable("SHARDLAB_BIN").as_deref().map(Path::new),
        )
    }

    fn decide(program: &Path, typed: &Path, by_cargo: bool, bin: Option<&Path>) -> Started {
        let folder = program.parent().unwrap_or(Path::new("."));
        // Either may be a link to the other.
        let real = |path: &Path| path.canonicalize().unwrap_or(path.to_path_buf());
        if by_cargo {
            Started::Cargo
        } else if bin.is_some_and(|bin| real(bin) == real(folder)) {
            Started::ShardlabBin
        // Cargo keeps this file where it puts programs, and tests into a folder below.
        } else if folder.ancestors().take(2).any(|folder| folder.join(".cargo-lock").exists()) {
            Started::Cargo
        } else {
            Started::Path(typed.parent().unwrap_or(Path::new("")).to_path_buf())
        }
    }

    fn command(&self, name: &str) -> String {
        match self {
            Started::Cargo => format!("{RUN}{name}"),
            Started::ShardlabBin => format!("$SHARDLAB_BIN/{name}"),
            Started::Path(folder) => folder.join(name).display().to_string(),
        }
    }

    fn commands(&self, text: &str) -> String {
        if *self == Started::Cargo {
            return text.to_string();
        }
        let mut written = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(RUN) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            written += before;
            written += &self.command(name);
            // Cargo needs ` --` in front of a program's own arguments.
            rest = match after.strip_prefix(" --") {
                Some(arguments) if !arguments.starts_with(|c| is_name(c) || c == '-') => arguments,
                _ => after,
            };
        }
        written + rest
    }
}

/// Cargo's command, in front of a program's name.
const RUN: &str = "cargo run --bin ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_the_one_that_works_where_a_program_was_started() {
        let room = tempfile::tempdir().unwrap();
        let target = room.path().join("target/debug");
        let bin = room.path().join("bin");
        for folder in [&target.join("deps"), &bin] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(target.join(".cargo-lock"), "").unwrap();
        let lab = bin.join("lab03");
        let typed = Path::new("../bin/lab03");
        let started = |by_cargo, bin: Option<&Path>| Started::decide(&lab, typed, by_cargo, bin);
        assert_eq!(started(true, Some(&bin)), Started::Cargo);
        assert_eq!(started(false, Some(&bin)), Started::ShardlabBin);
        assert_eq!(started(false, Some(&bin.join("../bin"))), Started::ShardlabBin);
        assert_eq!(started(false, None).command("lab04"), "../bin/lab04");
        assert_eq!(started(false, Some(&target)).command("lab04"), "../bin/lab04");
        let on_path = Started::decide(&lab, Path::new("lab03"), false, None);
        assert_eq!(on_path.command("lab04"), "lab04");
        for built in ["lab03", "deps/all-123"] {
            let built = target.join(built);
            assert_eq!(Started::decide(&built, &built, false, None), Started::Cargo);
        }
    }

    #[test]
    fn commands_in_a_text_lose_cargo_and_keep_their_arguments() {
        let text = "Run `cargo run --bin lab01 -- --rounds`, then cargo run --bin lab08.\n| `cargo run --bin lab04 --` |";
        assert_eq!(Started::Cargo.commands(text), text);
        assert_eq!(
            Started::ShardlabBin.commands(text),
            "Run `$SHARDLAB_BIN/lab01 --rounds`, then $SHARDLAB_BIN/lab08.\n| `$SHARDLAB_BIN/lab04` |"
        );
        let path = Started::Path("/a/bin".into());
        assert_eq!(
            path.commands("cargo run --bin lab01"),
            "/a/bin/lab01",
            "the text ends with the command"
        );
        assert_eq!(path.commands("cargo run --bin lab01 --release"), "/a/bin/lab01 --release");
        let other = "cargo run --features llm --bin lab10";
        assert_eq!(path.commands(other), other, "this needs another build");
    }
}
