//! A program that has run: its exit code and its output.

use std::process::{Command, Output, Stdio};

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
