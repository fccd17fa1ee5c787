//! Compiles the copy, and runs a room's tests.

use super::{Result, Room};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The test programs by package, and the folders in which they run.
pub type Programs = BTreeMap<String, [PathBuf; 2]>;

/// The folder of the copy. What is compiled there has the same names as what is compiled here, and
/// so a target folder of its own.
pub fn copy() -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    std::path::absolute(&target).unwrap_or_else(|_| target.into()).join("mutants")
}

/// Runs cargo in the copy, for these packages. Returns whether it went well, and what it said.
pub fn cargo<'a>(
    packages: impl Iterator<Item = &'a str>,
    arguments: &[&str],
) -> Result<(bool, String)> {
    let output = Command::new("cargo")
        .current_dir(copy())
        .args(arguments)
        .args(packages.flat_map(|package| ["--package", package]))
        .args(["--offline", "--message-format", "short", "--target-dir", "target"])
        .output()?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Compiles the tests of all rooms, and finds their programs.
pub fn build(rooms: &[Room]) -> Result<Programs> {
    let packages = rooms.iter().map(|room| room.package);
    let units = cargo(packages, &["test", "--no-run", "--lib"])?;
    let all = cargo(["tests"].into_iter(), &["test", "--no-run", "--test", "all"])?;
    if !(units.0 && all.0) {
        return Err((units.1 + &all.1).into());
    }
    let mut programs = Programs::new();
    // `Executable unittests lib.rs (target/debug/deps/deepspeed-0123)`
    for line in (units.1 + &all.1).lines().filter(|line| line.contains("Executable")) {
        let path = line.rsplit('(').next().unwrap_or_default().trim_end_matches(')');
        let path = copy().join(path);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.rsplit_once('-').map_or("", |(name, _)| name).replace('_', "-");
        let folder = match &*name {
            "shardlab" => copy(),
            "bf16-products" => copy().join("bf16"),
            "all" => copy().join("tests"),
            lab => copy().join("labs").join(lab),
        };
        programs.insert(name, [path, folder]);
    }
    Ok(programs)
}

/// Runs a room's tests with one edit, until one of them fails or `limit` seconds are over for each
/// program. Returns what noticed the edit, and the seconds.
pub fn noticed(
    programs: &Programs,
    room: &Room,
    number: usize,
    limit: f64,
) -> Result<(Option<String>, f64)> {
    let begun = Instant::now();
    let mut found = failed(&programs[room.package], &room.units, number, limit)?;
    if found.is_none() && !room.modules.is_empty() {
        found = failed(&programs["all"], &room.modules, number, limit)?;
    }
    Ok((found, begun.elapsed().as_secs_f64()))
}

fn failed(
    [path, folder]: &[PathBuf; 2],
    filters: &[&str],
    number: usize,
    limit: f64,
) -> Result<Option<String>> {
    let mut child = Command::new("timeout")
        .args(["--signal=KILL", &limit.to_string()])
        .arg(path)
        .args(filters)
        .current_dir(folder)
        .envs([("MUTANT", &*number.to_string()), ("RUST_BACKTRACE", "0")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    // `test zero::a_test ... FAILED`: the others need not end.
    let failed = |line: &String| line.starts_with("test ") && line.ends_with("FAILED");
    if let Some(line) = output.lines().map_while(|line| line.ok()).find(failed) {
        // With what its tests have started.
        Command::new("kill").args(["-9", "--", &format!("-{}", child.id())]).status()?;
        child.wait()?;
        return Ok(line.split(' ').nth(1).map(str::to_string));
    }
    let status = child.wait()?;
    Ok((!status.success()).then(|| status.to_string()))
}
