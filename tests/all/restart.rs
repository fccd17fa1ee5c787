//! lab08's training that outlives a kill, as its users start it: alone, and under `launch --max-restarts`.

use crate::suite::program::{failed, stderr, stdout, succeeded};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LAB08: &str = env!("CARGO_BIN_EXE_lab08");
const SMALL: &str = "--layers 1 --embd 8 --block 8 --batch 1 --grad-accum 2 --warmup 2 --steps 12 --save-every 4";

/// Runs a program in `dir`, where it finds no MPI.
fn run(dir: &Path, program: &str, words: &str) -> Output {
    let mut command = Command::new(program);
    command.current_dir(dir).env("NO_COLOR", "").env_remove("SHARDLAB_CORPUS").env("PATH", dir);
    command.args(words.split_whitespace()).output().expect("it starts")
}

fn lab08(dir: &Path, flags: &str) -> Output {
    run(dir, LAB08, &format!("{SMALL} {flags}"))
}

fn launch(dir: &Path, restarts: usize, flags: &str) -> Output {
    let words = format!("--max-restarts {restarts} -n 2 {LAB08} {SMALL} {flags}");
    run(dir, env!("CARGO_BIN_EXE_launch"), &words)
}

fn names(dir: PathBuf) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The text without line breaks of folding.
fn unfolded(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn has(text: &str, expected: &[&str]) {
    let text = unfolded(text);
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

const SAME: &str = "final weights: resumed = never stopped";

#[test]
fn a_killed_job_restarts_and_tells_what_was_lost() {
    let dir = tempfile::tempdir().unwrap();
    let output = launch(dir.path(), 1, "--kill-rank 1 --at-step 11");
    let (text, said) = (succeeded(&output), stderr(&output));
    has(
        &said,
        &[
            "rank 1 kills its process before step 11, and with it all ranks",
            "s (exit code 137: SIGKILL); restart 1 of 1",
            "launch: the job is done, after 1 restart",
        ],
    );
    has(
        &text,
        &[
            "resumed after step 8, from runs/lab08/restart/save-0003-step-8",
            "lost steps 9 to 10: 8 samples (64 tokens) and ",
            " of training are repeated; the restart took ",
            SAME,
        ],
    );
    assert_eq!((text.matches(" ✓\n").count(), text.matches("lab08 ·").count()), (2, 1), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let kept = names(dir.path().join("runs/lab08/restart"));
    assert_eq!(kept, ["latest", "progress.jsonl", "save-0002-step-4", "save-0003-step-8", "save-0004-step-12"]);

    // The same command again begins anew, in the same folder, and does not continue the first run.
    let output = launch(dir.path(), 1, "--kill-rank 0 --at-step 3");
    let text = succeeded(&output);
    has(&text, &["resumed after step 0, from ", "lost steps 1 to 2: 8 samples ", SAME]);

    // When no restart is left, the kill is the job's end.
    let output = launch(dir.path(), 0, "--kill-rank 1 --at-step 6");
    assert!(!output.status.success(), "{}", stdout(&output));
}

#[test]
fn checkpoints_are_chosen_kept_and_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let lab08 = |flags: &str| lab08(dir.path(), &format!("--checkpoints here {flags}"));
    let here = |name: &str| dir.path().join("here").join(name);
    let text = succeeded(&lab08("--resume auto --keep 2"));
    has(&text, &["start at step 1: no checkpoint is in here", "every 4 steps to here; the newest 2 stay"]);
    assert!(!text.contains(SAME), "{text}");
    assert_eq!(names(here("")), ["latest", "progress.jsonl", "save-0002-step-8", "save-0003-step-12"]);
    has(
        &succeeded(&lab08("")),
        &["resumed after step 12, from here/save-0003-step-12: no step is left to train", SAME],
    );
    has(&succeeded(&lab08("--resume here/save-0002-step-8")), &["resumed after step 8, from ", SAME]);
    let text = succeeded(&lab08("--resume none"));
    has(&text, &["start at step 1"]);
    assert!(!text.contains("no checkpoint") && !text.contains(SAME), "{text}");

    // The newest is damaged: `auto` says so and takes the one before, and a path is refused with a way out.
    let newest = std::fs::read_to_string(here("latest")).unwrap();
    let file = here(&newest).join("rank-001.safetensors");
    std::fs::write(&file, &std::fs::read(&file).unwrap()[1..]).unwrap();
    has(
        &succeeded(&lab08("--resume auto")),
        &["rejected here/", "rank-001.safetensors is damaged", "resumed after step 8, ", SAME],
    );
    let refused = lab08(&format!("--resume here/{newest}"));
    failed(&refused, 2, "here/");
    has(
        &stderr(&refused),
        &["rank-001.safetensors is damaged: it is truncated", "a good checkpoint: --resume here/save-"],
    );
    let refused = lab08("--resume auto --ranks 3");
    failed(&refused, 2, "no checkpoint in here can be used");
    has(&stderr(&refused), &["a different world size: it has 2 ranks, and this run 3 ranks"]);
}

/// Nothing restarts it here: the next start continues by itself.
#[test]
fn a_killed_training_continues_when_it_is_started_again() {
    let dir = tempfile::tempdir().unwrap();
    let killed = lab08(dir.path(), "--kill-rank 0 --at-step 7");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&killed.status), Some(9));
    let text = succeeded(&lab08(dir.path(), "--resume auto"));
    has(&text, &["resumed after step 4, ", "lost steps 5 to 6: 8 samples ", SAME]);
    // A run with different flags is not the run that was stopped: the check finds it.
    succeeded(&lab08(dir.path(), "--resume none --lr 0.01"));
    let other = lab08(dir.path(), "--resume auto");
    failed(&other, 1, "the resumed run is not the run that was never stopped");
}

/// Only the bytes are checked: times are the machine's.
#[test]
fn a_save_in_the_background_writes_what_a_save_at_once_writes() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&run(dir.path(), LAB08, "--stall --block 8 --batch 1 --grad-accum 1"));
    has(&text, &["save at once: the training waits", "both kinds of saves write the same bytes", " ✓"]);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // Nothing of it stays.
    assert!(!dir.path().join("runs/lab08/stall").exists());
}

#[test]
fn mistakes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, what) in [
        ("--kill-rank 2 --at-step 3", "--kill-rank 2 is out of range"),
        ("--kill-rank 1 --at-step 13", "--at-step 13 is out of range"),
        ("--keep 0", "--keep 0 is out of range"),
        ("--kill-rank 1", "the following required arguments were not provided: --at-step"),
        ("--resume auto --policy auto", "--policy auto is not for a training with --resume"),
        ("--resume auto --metrics m", "--metrics is not for a training with --resume"),
        ("--resume no/such/folder", "cannot read no/such/folder/manifest.json"),
    ] {
        failed(&lab08(dir.path(), flags), 2, what);
    }
    // A restart would end the same way.
    let output = launch(dir.path(), 3, "--keep 0");
    assert_eq!(output.status.code(), Some(2));
    has(&stderr(&output), &["no restart: its input is bad"]);
}
