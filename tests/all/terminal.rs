//! Whole screens as a terminal shows them: narrow ones, in colour and without, and beside other
//! programs.

use crate::suite::program::{lab, program, stderr, succeeded};
use book::plain;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;

/// A program that writes to a terminal of that many columns, and the terminal's other end.
fn start(
    columns: usize,
    folder: &Path,
    name: &str,
    flags: &str,
    set: impl FnOnce(&mut Command),
) -> (Child, File) {
    start_in([0, columns], folder, name, flags, set)
}

/// The same with lines, which a terminal of 0 does not tell.
fn start_in(
    [lines, columns]: [usize; 2],
    folder: &Path,
    name: &str,
    flags: &str,
    set: impl FnOnce(&mut Command),
) -> (Child, File) {
    let (mut ours, mut theirs) = (-1, -1);
    let [ws_row, ws_col] = [lines, columns].map(|size| size as u16);
    let mut size = libc::winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the two descriptors are written, and the size is read; name and settings may be null.
    let opened =
        unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null_mut(), &raw mut size) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both have just been opened, and nobody else closes them.
    let (ours, theirs) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = Command::new(program(name));
    command
        .current_dir(folder)
        .args(flags.split_whitespace())
        .env("COLUMNS", columns.to_string())
        .env("TERM", "xterm")
        .env_remove("CI")
        .env_remove("SHARDLAB_CORPUS")
        .stdin(Stdio::null())
        .stdout(theirs.try_clone().unwrap())
        .stderr(theirs);
    // A test that runs in the background of a script has been told to ignore Ctrl-C, and so would
    // its children. SAFETY: this call is allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    };
    set(&mut command);
    // The command still holds the terminal's other end, until it is dropped: without it, reading
    // ends.
    (command.spawn().unwrap(), File::from(ours))
}

/// Reads what a program writes to a terminal: to its end, or until it has written something.
fn read(terminal: &mut File, until: Option<&str>) -> String {
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    // On Linux a terminal that nobody holds at its other end is an error, after all that was
    // written.
    while let Ok(length @ 1..) = terminal.read(&mut chunk) {
        text.extend_from_slice(&chunk[..length]);
        if until.is_some_and(|until| String::from_utf8_lossy(&text).contains(until)) {
            break;
        }
    }
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

/// What erases a line.
const ERASE: &str = "\r\x1b[K";

/// What is left on the terminal of what a program has written to it: a line that moves is not.
fn left(written: &str) -> String {
    let line = |line: &str| line.rsplit(ERASE).next().unwrap_or_default().to_string();
    let lines: Vec<String> = written.split('\n').map(line).collect();
    lines.join("\n")
}

/// What a program that succeeds leaves on a terminal of that many columns.
#[track_caller]
fn on_a_terminal(columns: usize, folder: &Path, name: &str, flags: &str, colour: bool) -> String {
    let (mut running, mut terminal) = start(columns, folder, name, flags, |command| {
        command.env("NO_COLOR", if colour { "" } else { "1" });
    });
    let text = read(&mut terminal, None);
    assert!(running.wait().unwrap().success(), "{name} {flags}");
    left(&text)
}

/// The numbers of a text in their order, with their commas and decimals.
fn numbers(text: &str) -> Vec<&str> {
    let is_inside = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let words = text.split(|c: char| !is_inside(c));
    let words = words.map(|word| word.trim_matches(['.', ',']));
    words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect()
}

#[test]
fn at_60_columns_no_line_sticks_out() {
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("lab00", ""),
        ("lab01", ""),
        ("lab06", "--steps 1"),
        ("lab07", "--layers 2 --heads 4 --embd 32 --block 16 --batch 1 --steps 1"),
        ("lab10", "--seq 16 --batch 4"),
        ("lab11", ""),
    ] {
        let text = on_a_terminal(60, folder.path(), name, flags, true);
        for line in plain(&text).lines() {
            assert!(line.chars().count() <= 60, "{name}: {line}\n{text}");
        }
    }
}

/// The screen whose table broke 531,233 into three lines. It has the same numbers at 60 columns as
/// at 100, and in colour as without.
#[test]
fn lab11s_screen_has_whole_numbers_at_any_width() {
    let folder = tempfile::tempdir().unwrap();
    let show = |columns, colour| on_a_terminal(columns, folder.path(), "lab11", "", colour);
    let sorted = |text: &str| {
        let text = text.replace("(this screen is too narrow for the 12 columns of a table)", "");
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
        assert!(marked.count() >= 1 && words.join(" ").contains("* may be fastest; "), "{text}");
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
            .args(tiny.split_whitespace())
            .env("SHARDLAB_OTHERS", others)
            .env_remove("SHARDLAB_CORPUS");
        succeeded(&command.output().unwrap())
    };
    let busy = run("1000");
    assert!(busy.contains("  busy     other work took"), "{busy}");
    assert!(!busy.contains("efficiency"), "{busy}");
    let quiet = run("0");
    assert!(!quiet.contains("  busy  ") && !quiet.contains("other work"), "{quiet}");
    // Where two ranks do not take turns, the two speeds are compared, or not.
    if shardlab::launch::cores() >= 2 {
        assert!(busy.contains("not compared with one rank: other"), "{busy}");
        assert!(quiet.contains("(efficiency"), "{quiet}");
    }
}

/// Over this link the first comparison takes more than a second, and so do the steps of the stages:
/// the line that moves appears on any machine.
const SLOW: &str =
    "--ranks 2 --layers 1 --embd 16 --heads 2 --block 16 --batch 1 --steps 2 --link 40ms,1GB/s";

/// What it says first.
const MOVES: &str = "the lesson's version and the library's";

#[test]
#[ignore = "waits at a terminal: the gate runs it; run it when you change the line that moves"]
fn the_line_that_moves_leaves_nothing_on_a_terminal_and_reaches_no_pipe() {
    let folder = tempfile::tempdir().unwrap();
    // Both mostly wait, so they wait together.
    let mut piped = Command::new(program("lab04"));
    piped
        .current_dir(folder.path())
        .args(SLOW.split_whitespace())
        .env("TERM", "xterm")
        .env("SHARDLAB_OTHERS", "0")
        .env_remove("CI")
        .env_remove("SHARDLAB_CORPUS")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let piped = piped.spawn().unwrap();
    let (mut running, mut terminal) = start(80, folder.path(), "lab04", SLOW, |command| {
        command.env("NO_COLOR", "1").env("SHARDLAB_OTHERS", "0");
    });
    let written = read(&mut terminal, None);
    assert!(running.wait().unwrap().success(), "{written}");
    assert!(written.contains(MOVES), "{written:?}");
    let piped = piped.wait_with_output().unwrap();
    assert!(piped.stderr.is_empty());
    let piped = succeeded(&piped);
    assert!(!piped.contains(['\r', '\x1b']), "{piped:?}");
    assert_eq!(left(&written), piped);
}

#[test]
#[ignore = "waits at a terminal: the gate runs it; run it when you change the line that moves"]
fn ctrl_c_and_an_error_erase_the_line_that_moves() {
    let folder = tempfile::tempdir().unwrap();
    // Found in the last stage. Both mostly wait, so they wait together.
    let flags = format!("{SLOW} --break used-after-release");
    let (mut failing, mut other) = start(80, folder.path(), "lab04", &flags, |_| ());
    let (mut running, mut terminal) = start(80, folder.path(), "lab04", SLOW, |_| ());
    let before = read(&mut terminal, Some(MOVES));
    assert!(before.contains(MOVES), "{before:?}");
    // SAFETY: this call touches no memory.
    unsafe { libc::kill(running.id() as i32, libc::SIGINT) };
    let after = read(&mut terminal, None);
    assert!(after.ends_with(ERASE), "{after:?}");
    let status = running.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{status}");

    let text = read(&mut other, None);
    assert!(!failing.wait().unwrap().success());
    assert!(text.contains(MOVES), "{text:?}");
    assert!(left(&text).contains("\nerror: "), "{text:?}");
}

#[test]
fn a_refusal_stays_within_the_width() {
    let flags = "--collective all-to-none";
    let wide = stderr(&lab("lab01", flags));
    assert!(wide.lines().any(|line| line.len() > 80), "a pipe's lines stay whole\n{wide}");
    for columns in [60, 80] {
        let (mut running, mut terminal) = start(columns, Path::new("/"), "lab01", flags, |_| ());
        let text = read(&mut terminal, None);
        assert_eq!(running.wait().unwrap().code(), Some(2));
        assert!(
            text.lines().all(|line| line.len() <= columns) && !text.contains('\x1b'),
            "{columns}\n{text}"
        );
        // Folded lines go on below their text, and nothing is lost.
        assert!(text.lines().filter(|line| line.starts_with("      ")).count() >= 2, "{text}");
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        assert_eq!(words(&text), words(&wide));
    }
}

/// Where a run ends below its picture, one line says how far above that is: also of a mistake, and
/// of a check that failed, before the error. A terminal with room for all says nothing.
#[test]
fn a_picture_that_has_left_the_screen_is_pointed_at() {
    let folder = tempfile::tempdir().unwrap();
    let small = "--layers 1 --embd 16 --heads 2 --block 8";
    let ring = format!("--ranks 2 --steps 1 {small}");
    let loads = format!("--ranks 2 --steps 2 {small}");
    for (lines, name, flags, picture) in [
        (24, "lab12", ring.clone(), "Which chunks meet"),
        (24, "lab12", format!("{ring} --break stale-kv"), "Which chunks meet"),
        (24, "lab13", format!("{loads} --break average-all"), "Copies for each expert"),
        (24, "lab13", loads, "Copies for each expert"),
        (24, "lab11", String::new(), "The search: "),
        (200, "lab12", format!("{ring} --break stale-kv"), ""),
    ] {
        let (mut running, mut terminal) =
            start_in([lines, 80], folder.path(), name, &flags, |command| {
                command.env("NO_COLOR", "1");
            });
        let text = left(&read(&mut terminal, None));
        let status = running.wait().unwrap();
        assert_eq!(status.success(), !flags.contains("--break"), "{text}");
        let shown: Vec<&str> = text.lines().collect();
        let said: Vec<usize> =
            (0..shown.len()).filter(|&i| shown[i].contains("lines above.")).collect();
        if picture.is_empty() {
            assert!(said.is_empty(), "{text}");
            continue;
        }
        assert_eq!(said.len(), 1, "{name} {flags}:\n{text}");
        let line = shown[said[0]];
        let far: usize = line.split(' ').find_map(|word| word.parse().ok()).expect(line);
        assert!(shown[said[0] - far].contains(picture), "{name} {flags}: {line}\n{text}");
        let error = shown.iter().position(|line| line.starts_with("error: "));
        assert!(error.is_none_or(|error| error > said[0]), "{text}");
    }
}
