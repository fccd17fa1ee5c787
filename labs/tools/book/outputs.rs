//! The outputs that the book shows. `book/outputs.toml` names each output and its command, and
//! `book/outputs/` holds the outputs, texts with a terminal's colour codes. This file runs the
//! commands, and writes their outputs or compares them.

use super::colours::plain;
use super::compare::{Rule, differences};
use anyhow::{Context, Result, ensure};
use kit::show::Screen;
use serde::Deserialize;
use shardlab::error::BadInput;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The width of a terminal.
const COLUMNS: usize = 80;

/// Seconds that only a command takes that hangs.
const HANG: &str = "120";

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

/// Runs the commands of all outputs whose file name contains `name`, and writes what they print.
///
/// # Errors
///
/// [`BadInput`] where no name fits; where a command fails, or its output cannot be written.
pub fn write(screen: &Screen, root: &Path, name: &str) -> Result<()> {
    each(root, name, Runs::new(root, false)?, |_, path, text, took| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        screen.say(format!("wrote {} ({took:.1?})", path.display()));
        Ok(0)
    })?;
    Ok(())
}

/// Runs the commands again, without wide vectors, and compares what their outputs say.
///
/// # Errors
///
/// [`BadInput`] where no name fits; where a command fails; and after all were compared, where
/// outputs differ.
pub fn compare(screen: &Screen, root: &Path, name: &str) -> Result<()> {
    let runs = Runs::new(root, true)?;
    let found = each(root, name, runs, |output, path, text, took| {
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

fn each(
    root: &Path,
    name: &str,
    mut runs: Runs,
    mut act: impl FnMut(&Output, &Path, String, Duration) -> Result<usize>,
) -> Result<usize> {
    let outputs = outputs(root)?;
    let mut chosen = outputs.iter().filter(|output| output.file.contains(name)).peekable();
    if chosen.peek().is_none() {
        let what = format!("no output's name contains {name:?}");
        return Err(BadInput::new(what, "give a part of a name in book/outputs.toml").into());
    }
    let mut found = 0;
    for output in chosen {
        let (text, took) = runs.of(output)?;
        found += act(output, &root.join("book/outputs").join(&output.file), text, took)?;
    }
    Ok(found)
}

/// The runs of the commands. Each command runs once, in a folder that has the play and nothing
/// else, with the programs beside this one. So neither the checkout's files nor the reader's
/// variables change its output.
struct Runs {
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// Whether loops run without wide vectors. They are slower then, and their results are bitwise
    /// equal.
    portable: bool,
    done: HashMap<String, (String, Duration)>,
}

impl Runs {
    fn new(root: &Path, portable: bool) -> Result<Runs> {
        let here = std::env::current_exe().context("where is this program?")?;
        let programs = here.parent().context("this program is in no folder")?.to_path_buf();
        let folder = tempfile::tempdir()?;
        let play = Path::new("data/play.txt");
        std::fs::create_dir(folder.path().join("data"))?;
        std::fs::copy(root.join(play), folder.path().join(play)).context("the play")?;
        Ok(Runs { folder, programs, portable, done: HashMap::new() })
    }

    /// The output of the command, as the book shows it, and how long it took.
    fn of(&mut self, output: &Output) -> Result<(String, Duration)> {
        let run = format!("{} {}", output.command, output.also);
        let context = || format!("`{}`, for {}", run.trim_end(), output.file);
        if !self.done.contains_key(&run) {
            let ran = self.run(&run, output).with_context(context)?;
            self.done.insert(run.clone(), ran);
        }
        let (printed, took) = &self.done[&run];
        let text = match &output.leaves {
            Some(file) => {
                std::fs::read_to_string(self.folder.path().join(file)).with_context(context)?
            }
            None => printed.clone(),
        };
        let text = excerpt(&text, output).with_context(context)?;
        // A picture and data stay as they are. A text begins with the command that the reader
        // types.
        if !output.file.ends_with(".txt") {
            return Ok((text, *took));
        }
        let before = output.from.as_ref().map_or("", |_| "…\n");
        let after = output.until.as_ref().map_or("", |_| "…\n");
        Ok((format!("{}\n{before}{text}{after}", output.typed()), *took))
    }

    fn run(&self, command: &str, output: &Output) -> Result<(String, Duration)> {
        let command = programs(command);
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("timeout");
        shell
            .args([HANG, "sh", "-c", &format!("{{ {command}\n}} 2>&1")])
            .current_dir(self.folder.path());
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
        if self.portable {
            shell.env("SHARDLAB_SIMD", "portable");
        }
        let start = Instant::now();
        let ran = shell.stdin(Stdio::null()).output().context("cannot start timeout")?;
        let text = String::from_utf8(ran.stdout)?;
        ensure!(
            ran.status.code() == Some(output.exit),
            "ended with {}, not with {}:\n{text}",
            ran.status,
            output.exit
        );
        Ok((text, start.elapsed()))
    }
}

/// The command with programs in place of `cargo run`, which does not work outside the package.
fn programs(command: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    let mut rest = command.split(' ').peekable();
    while let Some(word) = rest.next() {
        words.push(word);
        if words.ends_with(&["cargo", "run", "--bin"]) {
            words.truncate(words.len() - 3);
            words.extend(rest.next());
            rest.next_if_eq(&"--");
        }
    }
    words.join(" ")
}

fn excerpt(text: &str, output: &Output) -> Result<String> {
    let mut lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    // Marks are words, which colour codes may divide.
    let has = |line: &str, mark: &str| plain(line).contains(mark);
    if let Some(mark) = &output.from {
        let at = lines.iter().position(|line| has(line, mark));
        lines.drain(..at.with_context(|| format!("no line contains {mark:?}"))?);
    }
    if let Some(mark) = &output.until {
        let is_end = |line: &&str| {
            if mark.is_empty() {
                line.is_empty()
            } else {
                has(line, mark)
            }
        };
        let at = lines.iter().skip(1).position(is_end);
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
