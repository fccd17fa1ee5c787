//! The project's programs; and one that has run: its exit code and its output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

/// The checkout.
pub(crate) use crate::ROOT;

/// The path of one of the project's programs. The first call builds them, so that no stale one is
/// tested: Cargo names only the programs of a test's own package.
pub fn program(name: &str) -> &'static str {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(build);
    let path = FOLDER.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.is_file(), "no program is named {name}");
    path.into_os_string().into_string().expect("a path of UTF-8").leak()
}

/// Builds the test's programs, as the test was built. Returns their folder.
fn build() -> PathBuf {
    // These tests load the machine themselves, and no screen may depend on that.
    // SAFETY: no test reads the environment but by Rust's functions, which lock it.
    unsafe { std::env::set_var("SHARDLAB_OTHERS", "0") };
    // This test is target/PROFILE/deps/NAME-HASH.
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .current_dir(ROOT)
        .args(["build", "--quiet", "--offline"])
        .args(crate::PROGRAMS)
        .arg("--target-dir")
        .arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    if cfg!(feature = "mpi") {
        cargo.args(["--features", "mpi"]);
    }
    assert!(cargo.status().unwrap().success(), "the programs cannot be built");
    folder.to_path_buf()
}

/// A lab with these flags in a folder, away from any corpus that a reader may have fetched.
pub fn lab_in(folder: &Path, name: &str, flags: &str) -> Output {
    let mut command = Command::new(program(name));
    command
        .current_dir(folder)
        .env("NO_COLOR", "")
        .env("RUST_BACKTRACE", "0")
        .env_remove("SHARDLAB_CORPUS");
    command.args(flags.split_whitespace()).output().expect("the lab starts")
}

/// A lab with these flags, in a folder of its own.
pub fn lab(name: &str, flags: &str) -> Output {
    lab_in(tempfile::tempdir().unwrap().path(), name, flags)
}

/// Runs a lab with each of these flags: its own checks must hold, which its exit code says.
#[track_caller]
pub fn passes(name: &str, all: &[&str]) {
    for flags in all {
        let output = lab(name, flags);
        assert!(
            output.status.success(),
            "{name} {flags}\n{}{}",
            stdout(&output),
            stderr(&output)
        );
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program that Ctrl-C ends. It may ignore it otherwise: a shell starts its background jobs so,
/// and a process inherits that from whatever has started these tests.
#[cfg(unix)]
pub fn interruptible(command: &mut Command) -> &mut Command {
    let default = || unsafe { Ok(_ = libc::signal(libc::SIGINT, libc::SIG_DFL)) };
    // SAFETY: between `fork` and `exec` only `signal` is called, which is allowed there.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, default) }
}

/// The output of a program that must end within a minute. It may not take more than 4 GB, so that
/// an endless file fails the test and not the machine.
#[cfg(target_os = "linux")]
#[track_caller]
pub fn soon(command: &mut Command) -> Output {
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\""])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    limited.current_dir(command.get_current_dir().unwrap_or(std::path::Path::new(".")));
    let mut child = limited
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed().as_secs() >= 60 {
            child.kill().unwrap();
            panic!("still running after a minute: {command:?}");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

/// The output of a run that must have succeeded.
#[track_caller]
pub fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}\n{}", stdout(output), stderr(output));
    stdout(output)
}

/// The output of a run that must have ended with `code` and printed `what` first on stderr.
#[track_caller]
pub fn failed(output: &Output, code: i32, what: &str) -> String {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{}\n{error}", stdout(output));
    assert!(error.starts_with(&format!("error: {what}")), "{error}");
    assert!(!error.contains("panicked"), "{error}");
    stdout(output)
}

/// An output that must have all of these texts.
#[track_caller]
pub fn has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

/// An output that must fit a terminal of 80 columns.
#[track_caller]
pub fn is_narrow(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "wider than 80: {line}");
    }
}

/// A screen of 80 columns and at most so many lines.
#[track_caller]
pub fn fits(text: &str, lines: usize) {
    is_narrow(text);
    let count = text.lines().count();
    assert!(count <= lines, "{count} lines\n{text}");
}

/// The bars of a picture, in columns, and the bytes written beside each: `██░░░░ 600 kB`.
pub fn bars(text: &str) -> Vec<(usize, f64)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut rest = line;
        while let Some(start) = rest.find('█') {
            rest = &rest[start..];
            let columns = rest.chars().take_while(|&c| c == '█').count();
            rest = rest.trim_start_matches('█');
            let words: Vec<&str> =
                rest.trim_start_matches(['░', ' ']).split([' ', ',']).take(2).collect();
            let unit = match words.get(1) {
                Some(&"B") => 1.0,
                Some(&"kB") => 1e3,
                Some(&"MB") => 1e6,
                Some(&"GB") => 1e9,
                _ => panic!("no bytes beside a bar: {line}"),
            };
            found.push((columns, words[0].parse::<f64>().unwrap() * unit));
        }
    }
    found
}

/// Any two bars of a picture are in proportion to their bytes, to a column. The smallest have one
/// column.
#[track_caller]
pub fn bars_are_to_one_scale(text: &str) {
    let bars = bars(text);
    let &(longest, most) = bars.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("a bar");
    for (columns, bytes) in bars {
        let exact = longest as f64 * bytes / most;
        // Half a column, and what the written figure lost.
        let is_near = (columns as f64 - exact).abs() <= 0.55;
        assert!(
            is_near || (columns == 1 && exact < 1.0),
            "{columns} columns instead of {exact:.1}:\n{text}"
        );
    }
}

/// A program whose reader goes away must end silently, as the signal SIGPIPE would end it.
#[cfg(unix)]
#[track_caller]
pub fn ends_quietly_on_a_closed_pipe(command: &mut Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(stderr(&output), "");
}
