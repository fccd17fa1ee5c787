//! The outputs that the book shows. `book/outputs.toml` names each output and its command, and
//! `book/outputs/` holds the outputs, texts with a terminal's colour codes. This file runs the
//! commands, and writes their outputs or compares them.

use super::colours::plain;
use super::compare::{Rule, differences, has, pattern};
use anyhow::{Context, Result, anyhow, ensure};
use indexmap::IndexMap;
use kit::show::Screen;
use serde::Deserialize;
use shardlab::error::BadInput;
use shardlab::launch::cores;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// The width of a terminal.
const COLUMNS: usize = 80;

/// The play, in a checkout and where commands run.
const PLAY: &str = "data/play.txt";

/// Dumps of jobs that hung, there too.
const HANGS: &str = "book/pytorch/hangs";

/// Seconds that only a command takes that hangs.
const HANG: &str = "300";

#[derive(Deserialize)]
struct File {
    output: Vec<Output>,
}

/// A file in `book/outputs/`, and the command that makes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The file's name. It ends with `.txt`, or with `.svg` or `.json`.
    pub file: String,
    /// The command, as the reader types it.
    pub command: String,
    /// The command's exit code.
    #[serde(default)]
    pub exit: i32,
    /// Flags that make the command leave files as well. They do not change what it prints, so the
    /// book leaves them out.
    #[serde(default)]
    pub also: String,
    /// A file that the command leaves, if the book shows this file instead of the printed text.
    pub leaves: Option<String>,
    /// The excerpt begins with the first line that contains this text.
    pub from: Option<String>,
    /// The excerpt ends before the next line that contains this text. The empty string means an
    /// empty line.
    pub until: Option<String>,
    /// Differences that are allowed from run to run.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

impl Output {
    /// The command that runs for it.
    fn run(&self) -> String {
        format!("{} {}", self.command, self.also)
    }

    /// Whether it has colours: it is a text, and no other command reads it, which codes would
    /// disturb.
    fn is_in_colour(&self) -> bool {
        self.file.ends_with(".txt") && !self.command.contains(['|', '>'])
    }

    /// The command as the page shows it: one that is wider than a terminal goes on in the next
    /// line, with a flag or after a semicolon.
    pub fn typed(&self) -> String {
        let mut lines = Vec::new();
        let mut line = "$".to_string();
        for part in parts(&self.command) {
            if line.chars().count() + 1 + part.chars().count() + " \\".len() > COLUMNS {
                lines.push(std::mem::replace(&mut line, "   ".to_string()));
            }
            line = format!("{line} {part}");
        }
        lines.push(line);
        lines.join(" \\\n")
    }
}

/// A command's parts, between which a line may end: before a flag, and after a semicolon.
fn parts(command: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    for word in command.split(' ') {
        let begins = word.starts_with("--") && word.len() > 2;
        match parts.last_mut() {
            Some(part) if !begins && !part.ends_with(';') => *part += &format!(" {word}"),
            _ => parts.push(word.to_string()),
        }
    }
    parts
}

/// All outputs, in the order in which their commands run.
///
/// # Errors
///
/// Where `book/outputs.toml` below `root` cannot be read or parsed.
pub fn outputs(root: &Path) -> Result<Vec<Output>> {
    let path = root.join("book/outputs.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(toml::from_str::<File>(&text)
        .with_context(|| format!("cannot parse {}", path.display()))?
        .output)
}

/// Runs the commands of the outputs that one of `names` fits, of all where there is none, and
/// writes what they print. A part of a file's name fits, and the program that a command runs.
///
/// # Errors
///
/// [`BadInput`] where no name fits; where a command fails, or its output cannot be written.
pub fn write(screen: &Screen, root: &Path, names: &[String]) -> Result<()> {
    // One at a time: times on pages are those of a quiet machine.
    each(root, names, &Runs::new(root, false)?, 1, |_, path, text, took| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        screen.say(format!("wrote {} ({took:.1?})", path.display()));
        Ok(0)
    })?;
    Ok(())
}

/// Runs the commands again, with `portable` without wide vectors, and compares what their outputs
/// say.
///
/// # Errors
///
/// [`BadInput`] where no name fits; where a command fails; and after all were compared, where
/// outputs differ.
pub fn compare(screen: &Screen, root: &Path, names: &[String], portable: bool) -> Result<()> {
    let runs = Runs::new(root, portable)?;
    let at_a_time = cores();
    let found = each(root, names, &runs, at_a_time, |output, path, text, took| {
        let expected = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let found = differences(&plain(&expected), &plain(&text), &output.rules);
        let how = if found.is_empty() { "same   " } else { "DIFFERS" };
        screen.say(format!("{how} {} ({took:.1?})", output.file));
        for found in &found {
            screen.say(format!("  {}", found.replace('\n', "\n  ")));
        }
        Ok(found.len())
    })?;
    ensure!(
        found == 0,
        "{found} differences between the book and the labs\nhelp: see whether the lab or the page is wrong; \
         `cargo run --bin book -- outputs --write` writes the labs' output into the book"
    );
    Ok(())
}

/// Runs the commands of the chosen outputs, so many at a time, and gives each output to `act`.
fn each(
    root: &Path,
    names: &[String],
    runs: &Runs,
    at_a_time: usize,
    mut act: impl FnMut(&Output, &Path, String, Duration) -> Result<usize>,
) -> Result<usize> {
    let outputs = outputs(root)?;
    let fits = |output: &&Output| {
        let runs = |name| format!("{} ", output.command).contains(&format!("--bin {name} "));
        names.is_empty() || names.iter().any(|name| output.file.contains(&**name) || runs(name))
    };
    let chosen: Vec<&Output> = outputs.iter().filter(fits).collect();
    if chosen.is_empty() {
        let what = format!("no output is called {}, nor made by it", names.join(" or "));
        return Err(BadInput::new(what, "give a part of a name in book/outputs.toml").into());
    }
    // A command runs once, for all outputs that show it.
    let mut distinct: IndexMap<String, (&Output, OnceLock<Result<Ran>>)> = IndexMap::new();
    for &output in &chosen {
        distinct.entry(output.run()).or_insert((output, OnceLock::new()));
    }
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while let Some((_, (output, ran))) = distinct.get_index(next.fetch_add(1, Relaxed))
                {
                    ran.get_or_init(|| runs.run(output));
                }
            });
        }
        let mut found = 0;
        for output in chosen {
            let ran = distinct[&output.run()].1.wait();
            let context = || format!("`{}`, for {}", output.run().trim_end(), output.file);
            let text = ran
                .as_ref()
                .map_err(|error| anyhow!("{error:#}"))
                .and_then(|ran| ran.shown(output));
            let took = ran.as_ref().map_or(Duration::ZERO, |ran| ran.took);
            let path = root.join("book/outputs").join(&output.file);
            found += act(output, &path, text.with_context(context)?, took)?;
        }
        Ok(found)
    })
}

/// How commands run: once, each in a folder of its own that has the play, the dumps and nothing
/// else, with the programs beside this one. So neither the checkout's files nor the reader's
/// variables change its output.
struct Runs {
    root: PathBuf,
    programs: PathBuf,
    /// Whether loops run without wide vectors. They are slower then, and their results are bitwise
    /// equal.
    portable: bool,
}

/// A command that has run: what it printed, and the folder that it has left.
struct Ran {
    printed: String,
    folder: tempfile::TempDir,
    took: Duration,
}

impl Ran {
    /// What the book shows of it.
    fn shown(&self, output: &Output) -> Result<String> {
        let text = match &output.leaves {
            Some(file) => std::fs::read_to_string(self.folder.path().join(file))?,
            None => self.printed.clone(),
        };
        let text = excerpt(&text, output)?;
        // A picture and data stay as they are. A text begins with the command that the reader
        // types.
        if !output.file.ends_with(".txt") {
            return Ok(text);
        }
        let before = output.from.as_ref().map_or("", |_| "…\n");
        let after = output.until.as_ref().map_or("", |_| "…\n");
        Ok(format!("{}\n{before}{text}{after}", output.typed()))
    }
}

impl Runs {
    fn new(root: &Path, portable: bool) -> Result<Runs> {
        let here = std::env::current_exe().context("where is this program?")?;
        let programs = here.parent().context("this program is in no folder")?.to_path_buf();
        Ok(Runs { root: root.canonicalize()?, programs, portable })
    }

    fn run(&self, output: &Output) -> Result<Ran> {
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("data"))?;
        std::fs::copy(self.root.join(PLAY), folder.path().join(PLAY)).context("the play")?;
        std::fs::create_dir_all(folder.path().join("book/pytorch"))?;
        std::os::unix::fs::symlink(self.root.join(HANGS), folder.path().join(HANGS))?;
        let command = programs(&output.run());
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("timeout");
        shell
            .args([HANG, "sh", "-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(folder.path());
        shell
            .env("PATH", format!("{}:{path}", self.programs.display()))
            // Whether other programs run beside this one is nothing that a page should say.
            .env("SHARDLAB_OTHERS", "0");
        match output.is_in_colour() {
            true => shell.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1"),
            false => shell.env("NO_COLOR", "1"),
        };
        // The book shows launch lines as a user without root's rights sees them.
        shell.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        for (name, _) in std::env::vars() {
            let ours = ["SHARDLAB_", "PBS_", "SLURM_", "COLUMNS"]
                .iter()
                .any(|start| name.starts_with(start));
            if ours || name.ends_with("_NUM_THREADS") {
                shell.env_remove(name);
            }
        }
        // The book has the bits that every machine gives: tiles have their own.
        shell.env("SHARDLAB_SIMD", if self.portable { "portable" } else { "vectors" });
        let start = Instant::now();
        let ran = shell.stdin(Stdio::null()).output().context("cannot start timeout")?;
        let printed = String::from_utf8(ran.stdout)?;
        ensure!(
            ran.status.code() == Some(output.exit),
            "ended with {}, not with {}:\n{printed}",
            ran.status,
            output.exit
        );
        Ok(Ran { printed, folder, took: start.elapsed() })
    }
}

/// The command with programs in place of `cargo run`, which does not work outside the package.
fn programs(command: &str) -> String {
    pattern(r"cargo run --bin (\S+)(?: --( |$))?")
        .replace_all(command, "$1$2")
        .into_owned()
}

fn excerpt(text: &str, output: &Output) -> Result<String> {
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    // Marks are words, which colour codes may divide.
    let has = |line: &str, mark: &str| has(&plain(line), mark);
    if let Some(mark) = &output.from {
        let at = lines.iter().position(|line| has(line, mark));
        lines.drain(..at.with_context(|| format!("no line contains {mark:?}"))?);
    }
    if let Some(mark) = &output.until {
        let at = lines.iter().skip(1).position(|line| has(line, mark));
        lines.truncate(
            1 + at.with_context(|| format!("no line after the first contains {mark:?}"))?,
        );
    }
    while lines.last().is_some_and(|line| line.is_empty()) {
        lines.pop();
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_the_programs_beside_this_one() {
        assert_eq!(programs("cargo run --bin lab03 -- --ranks 4"), "lab03 --ranks 4");
        assert_eq!(
            programs("A=b cargo run --bin lab00 && cargo run --bin book -- figure x"),
            "A=b lab00 && book figure x"
        );
        assert_eq!(programs("echo cargo"), "echo cargo");
    }

    #[test]
    fn an_excerpt_is_from_one_line_to_before_another() {
        let output = |from: &str, until: &str| Output {
            file: "a.txt".into(),
            command: String::new(),
            exit: 0,
            also: String::new(),
            leaves: None,
            from: Some(from.into()),
            until: Some(until.into()),
            rules: Vec::new(),
        };
        let text = "one\ntwo  \n\nthree\nfour";
        assert_eq!(excerpt(text, &output("two", "three")).unwrap(), "two\n");
        assert_eq!(excerpt(text, &output("one", "")).unwrap(), "one\ntwo\n");
        assert!(excerpt(text, &output("five", "three")).is_err());
        assert!(excerpt(text, &output("three", "two")).is_err());
    }
}
