//! Compiles the copy, and runs a room's tests.

use super::{Result, Room};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The test programs by package, and the folders in which they run.
pub type Programs = BTreeMap<String, [PathBuf; 2]>;

/// The target folder: packages from elsewhere are compiled there already.
fn target() -> PathBuf {
    let named = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    std::path::absolute(&named).unwrap_or_else(|_| named.into())
}

/// The folder of the copy.
pub fn copy() -> PathBuf {
    target().join("mutants")
}

/// Runs cargo in the copy, for the rooms' packages. Returns whether it went well, and what it said.
pub fn cargo(rooms: &[Room], arguments: &[&str]) -> Result<(bool, String)> {
    let packages: BTreeSet<&str> = rooms.iter().map(|room| room.package).collect();
    let output = Command::new("cargo")
        .current_dir(copy())
        .args(arguments)
        .args(packages.into_iter().flat_map(|package| ["--package", package]))
        .args(["--offline", "--message-format", "short", "--target-dir"])
        .arg(target())
        .output()
        .map_err(|error| error.to_string())?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Compiles the tests of all rooms, and finds their programs.
pub fn build(rooms: &[Room]) -> Result<Programs> {
    let copy = copy();
    let mut programs = Programs::new();
    for arguments in [&["test", "--no-run", "--lib"][..], &["test", "--no-run", "-p", "tests"]] {
        let rooms = if arguments.len() == 3 { rooms } else { &[] };
        let (ok, said) = cargo(rooms, arguments)?;
        if !ok {
            return Err(said);
        }
        // `Executable unittests lib.rs (target/debug/deps/deepspeed-0123)`
        for line in said.lines().filter(|line| line.contains("Executable")) {
            let path = line.rsplit('(').next().unwrap_or_default().trim_end_matches(')');
            let path = copy.join(path);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let name = name.rsplit_once('-').map_or("", |(name, _)| name).replace('_', "-");
            let folder = match &*name {
                "shardlab" => copy.clone(),
                "bf16-products" => copy.join("bf16"),
                "all" => copy.join("tests"),
                lab => copy.join("labs").join(lab),
            };
            programs.insert(name, [path, folder]);
        }
    }
    Ok(programs)
}

/// Runs a room's tests with one edit, until one of them fails or `limit` seconds are over. Returns
/// what noticed the edit, and the seconds.
pub fn noticed(
    programs: &Programs,
    room: &Room,
    number: usize,
    limit: f64,
) -> Result<(Option<String>, f64)> {
    let begun = Instant::now();
    let until = begun + Duration::from_secs_f64(limit);
    let mut found = None;
    for (name, filters) in [(room.package, &room.units), ("all", &room.modules)] {
        if found.is_none() && (name != "all" || !filters.is_empty()) {
            let program = programs.get(name).ok_or(format!("{name} has no test program"))?;
            found = failed(program, filters, number, until)
                .map_err(|error| format!("{}: {error}", program[0].display()))?;
        }
    }
    Ok((found, begun.elapsed().as_secs_f64()))
}

fn failed(
    [path, folder]: &[PathBuf; 2],
    filters: &[&str],
    number: usize,
    until: Instant,
) -> std::io::Result<Option<String>> {
    let mut child = Command::new(path)
        .current_dir(folder)
        .args(filters)
        .env("MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let output = child.stdout.take().expect("it is piped");
    let (send, lines) = channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output).lines().map_while(|line| line.ok());
        lines.all(|line| send.send(line).is_ok())
    });
    let found = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            // `test zero::a_test ... FAILED`: the others need not end.
            Ok(line) if line.starts_with("test ") && line.ends_with("FAILED") => {
                break line.split(' ').nth(1).map(str::to_string);
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break Some("its deadline".to_string()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                break (!status.success()).then(|| status.to_string());
            }
        }
    };
    // With what its tests have started.
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status()?;
    child.wait()?;
    Ok(found)
}
