//! Compiles the copy, and runs a room's tests.

use super::{Result, Room};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The test programs by package, and the folders in which they run.
pub type Programs = BTreeMap<String, (PathBuf, PathBuf)>;

/// Runs cargo in the copy. Returns whether it went well, and what it said.
pub fn cargo(copy: &Path, arguments: &[String]) -> Result<(bool, String)> {
    let target = std::path::absolute(
        std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string()),
    );
    let output = Command::new("cargo")
        .current_dir(copy)
        .args(arguments)
        .args(["--offline", "--message-format", "short"])
        // The packages from elsewhere are compiled already, and ours are others.
        .env("CARGO_TARGET_DIR", target.map_err(|error| error.to_string())?)
        .output()
        .map_err(|error| error.to_string())?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Compiles the tests of all rooms, and finds their programs.
pub fn build(copy: &Path, units: &[String]) -> Result<Programs> {
    let all = ["test", "--no-run", "-p", "tests", "--test", "all"].map(String::from);
    let mut programs = Programs::new();
    for arguments in [units, &all] {
        let (ok, said) = cargo(copy, arguments)?;
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
                "shardlab" => copy.to_path_buf(),
                "bf16-products" => copy.join("bf16"),
                "all" => copy.join("tests"),
                lab => copy.join("labs").join(lab),
            };
            programs.insert(name, (path, folder));
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
    for (name, filters) in [(room.package, room.units), ("all", room.modules)] {
        if name == "all" && filters.is_empty() {
            continue;
        }
        let (path, folder) =
            programs.get(name).ok_or_else(|| format!("{name} has no test program"))?;
        if let Some(what) = failed(path, folder, filters, number, until)? {
            return Ok((Some(what), begun.elapsed().as_secs_f64()));
        }
    }
    Ok((None, begun.elapsed().as_secs_f64()))
}

fn failed(
    path: &Path,
    folder: &Path,
    filters: &[&str],
    number: usize,
    until: Instant,
) -> Result<Option<String>> {
    let mut child = Command::new(path)
        .current_dir(folder)
        .args(filters)
        .env("MUTANT", number.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let output = child.stdout.take().ok_or("no output")?;
    let (send, lines) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines();
        lines.map_while(|line| line.ok()).all(|line| send.send(line).is_ok())
    });
    let found = loop {
        let left = until.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            // `test zero::a_test ... FAILED`: the others need not end.
            Ok(line) if line.starts_with("test ") && line.ends_with("FAILED") => {
                break Some(line.split(' ').nth(1).unwrap_or_default().to_string());
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => break Some("its deadline".to_string()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().map_err(|error| error.to_string())?;
                break (!status.success()).then(|| status.to_string());
            }
        }
    };
    // With what its tests have started.
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
    Ok(found)
}
