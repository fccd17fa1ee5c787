//! Whole screens as a terminal shows them: narrow ones, in colour and without, and beside other programs.

use crate::suite::program::{ROOT, program, succeeded};
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

/// What a program that succeeds writes to a terminal of that many columns.
#[track_caller]
fn on_a_terminal(columns: usize, folder: &Path, name: &str, flags: &str, colour: bool) -> String {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: the two descriptors are written; name, settings and size may be null.
    let opened =
        unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null_mut(), null_mut()) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both have just been opened, and nobody else closes them.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = Command::new(program(name));
    command
        .current_dir(folder)
        .args(flags.split_whitespace())
        .env("COLUMNS", columns.to_string())
        .env("TERM", "xterm")
        .env("NO_COLOR", if colour { "" } else { "1" })
        .env_remove("SHARDLAB_CORPUS")
        .stdin(Stdio::null())
        .stdout(theirs);
    let mut running = command.spawn().unwrap();
    // The command still holds the terminal's other end: without it, reading ends.
    drop(command);
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    let mut ours = File::from(ours);
    // On Linux a terminal that nobody holds at its other end is an error, after all that was written.
    while let Ok(length @ 1..) = ours.read(&mut chunk) {
        text.extend_from_slice(&chunk[..length]);
    }
    assert!(running.wait().unwrap().success(), "{name} {flags}");
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

/// `text` without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_string();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
    first + &rest.collect::<String>()
}

/// The numbers of a text in their order, with their commas and decimals.
fn numbers(text: &str) -> Vec<&str> {
    let is_inside = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let words = text.split(|c: char| !is_inside(c));
    let words = words.map(|word| word.trim_matches(['.', ',']));
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn at_60_columns_no_line_sticks_out() {
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("lab00", ""),
        ("lab01", ""),
        ("lab06", "--steps 1"),
        ("lab07", "--steps 1"),
        ("lab10", ""),
        ("lab11", ""),
    ] {
        let text = on_a_terminal(60, folder.path(), name, flags, true);
        for line in plain(&text).lines() {
            assert!(line.chars().count() <= 60, "{name}: {line}\n{text}");
        }
    }
}

/// The screen whose table broke 531,233 into three lines. It has the same numbers at 60 columns as at 100, and in colour as without.
#[test]
fn lab11s_screen_has_whole_numbers_at_any_width() {
    let folder = tempfile::tempdir().unwrap();
    let show = |columns, colour| on_a_terminal(columns, folder.path(), "lab11", "", colour);
    let sorted = |text: &str| {
        let text = text.replace(
            "(this screen is too narrow for the 12 columns of a table)",
            "",
        );
        let mut numbers: Vec<String> = numbers(&text).iter().map(|n| n.to_string()).collect();
        numbers.sort();
        numbers
    };
    let wide = show(100, false);
    assert_eq!(plain(&show(100, true)), wide);
    let narrow = show(60, true);
    assert!(narrow.contains("too narrow"), "{narrow}");
    assert_eq!(sorted(&plain(&narrow)), sorted(&wide), "{narrow}\n{wide}");
    // The best plan is marked in both, with and without colour.
    for text in [&wide, &plain(&narrow)] {
        let marked = text.lines().filter(|line| line.starts_with("* "));
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(
            marked.count() >= 1 && words.join(" ").contains("; * may be the fastest:"),
            "{text}"
        );
    }
    assert!(narrow.contains("\x1b[1;32m* "), "{narrow}");
}

#[test]
fn a_speed_up_that_others_made_is_not_printed() {
    let run = |others: &str| {
        let folder = tempfile::tempdir().unwrap();
        let tiny = "--layers 1 --heads 2 --embd 16 --block 16 --batch 2 --eval-iters 2 --steps 8 --ranks 2";
        let mut command = Command::new(program("lab03"));
        command
            .current_dir(folder.path())
            .args(["--data", &format!("{ROOT}/data/play.txt")])
            .args(tiny.split_whitespace())
            .env("SHARDLAB_OTHERS", others)
            .env_remove("SHARDLAB_CORPUS");
        succeeded(&command.output().unwrap())
    };
    let busy = run("1000");
    assert!(busy.contains("  busy     other work took"), "{busy}");
    assert!(!busy.contains("efficiency"), "{busy}");
    let quiet = run("0");
    assert!(
        !quiet.contains("  busy  ") && !quiet.contains("other work"),
        "{quiet}"
    );
    // Where two ranks do not take turns, the two speeds are compared, or not.
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= 2) {
        assert!(busy.contains("not compared with one rank: other"), "{busy}");
        assert!(quiet.contains("(efficiency"), "{quiet}");
    }
}
