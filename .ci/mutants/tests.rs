//! Compiles the copy of the checkout, and runs a room's tests there.

use super::edit::Edit;
use super::{ROOMS, Result, Room, parts};
use std::cmp::Reverse;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What is compiled in the copy has the same names as what is compiled here, and so a target folder
/// of its own.
pub fn folder() -> Result<PathBuf> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    Ok(std::path::absolute(target)?.join("mutants"))
}

/// The checkout's files in a folder.
pub fn tracked(folder: &str) -> Result<Vec<PathBuf>> {
    let git = Command::new("git").args(["ls-files", folder]).output()?;
    let mut files: Vec<PathBuf> =
        String::from_utf8_lossy(&git.stdout).lines().map(PathBuf::from).collect();
    files.sort();
    Ok(files)
}

/// Has cargo compile a copy of the checkout, with each edit behind its switch, for the packages of
/// rooms and tests. Returns what it said.
pub fn compile(list: &[Edit], arguments: &[&str]) -> Result<String> {
    let files = tracked(".")?;
    remove_others(&files)?;
    for file in files {
        let Ok(mut bytes) = fs::read(&file) else { continue };
        let mut edits: Vec<&Edit> = list.iter().filter(|edit| edit.file == file).collect();
        edits.sort_by_key(|edit| Reverse(edit.range.start));
        for edit in edits {
            bytes.splice(edit.range.clone(), switched(edit).into_bytes());
        }
        if file.ends_with("lib.rs") && !file.starts_with("labs/web") {
            bytes.extend_from_slice(include_bytes!("switch.rs"));
        }
        let to = folder()?.join(&file);
        // What does not change keeps its time, so that it is not compiled again.
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::write(&to, &bytes)?;
        }
    }
    let output = Command::new("cargo")
        .current_dir(folder()?)
        .args(arguments)
        .args(ROOMS.iter().flat_map(|room| ["--package", room.package]))
        .args(["--package", "library", "--package", "tests"])
        .args(["--offline", "--message-format", "short", "--target-dir", "target"])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_compiled = output.status.success();
    if is_compiled { Ok(said) } else { Err(said.into()) }
}

/// Removes from the copy what an earlier one had and this checkout has not: a module that has
/// become a folder cannot be both.
fn remove_others(files: &[PathBuf]) -> Result<()> {
    let copied = folder()?.join("copied");
    for old in fs::read_to_string(&copied).unwrap_or_default().lines().map(PathBuf::from) {
        if !files.contains(&old) {
            fs::remove_file(folder()?.join(old)).ok();
        }
    }
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    fs::create_dir_all(folder()?)?;
    Ok(fs::write(copied, names.join("\n"))?)
}

/// On a line of its own, by which an error finds its edit.
fn switched(edit: &Edit) -> String {
    let Edit { number, old, new, .. } = edit;
    if edit.rule == "dropped-call" {
        return format!("\nif !crate::mutant({number}) {{ {old} }}");
    }
    format!("\n(if crate::mutant({number}) {{ {new} }} else {{ {old} }})")
}

/// Runs a room's tests with one edit, until one of them fails or `limit` seconds are over for each
/// program. Returns what noticed the edit.
pub fn noticed(room: &Room, built: &str, number: usize, limit: f64) -> Result<Option<String>> {
    let mut found = failed([room.package, room.home, room.units], built, number, limit)?;
    for tests in [["library", "tests/library", room.modules], ["all", "tests", room.modules]] {
        if found.is_none() && !room.modules.is_empty() {
            found = failed(tests, built, number, limit)?;
        }
    }
    Ok(found)
}

/// Runs the programs of this name in their home, with those tests whose names contain one of the
/// filters: a package has its unit tests, and perhaps a program beside them that is called like it.
fn failed(tests: [&str; 3], built: &str, number: usize, limit: f64) -> Result<Option<String>> {
    let [name, home, filters] = tests;
    // `Executable unittests lib.rs (target/debug/deps/deepspeed-0123)`
    let path = format!("target/debug/deps/{}-", name.replace('-', "_"));
    let programs: Vec<&str> = built.split(&path).skip(1).collect();
    if programs.is_empty() {
        return Err(format!("no tests are called {name}").into());
    }
    for program in programs {
        let [hash, _] = parts(program, ')')?;
        let found = failed_in(&format!("{path}{hash}"), home, filters, number, limit)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn failed_in(
    program: &str,
    home: &str,
    filters: &str,
    number: usize,
    limit: f64,
) -> Result<Option<String>> {
    let mut child = Command::new("timeout")
        .args(["--signal=KILL", &limit.to_string()])
        .arg(folder()?.join(program))
        .args(filters.split_whitespace())
        .current_dir(folder()?.join(home))
        .env("MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    for line in output.lines().map_while(|line| line.ok()) {
        // `test zero::a_test ... FAILED`: no other need end, nor what they have started, which is
        // in timeout's group of processes.
        if line.starts_with("test ") && line.ends_with("FAILED") {
            Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status()?;
            child.wait()?;
            return Ok(line.split(' ').nth(1).map(str::to_string));
        }
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| status.to_string()))
}
