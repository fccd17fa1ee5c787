//! lab13 as its users start it: jobs whose checks hold, on any mesh, and a full disk.
//! `tests/screens/lab13.txt` has what it shows.

use crate::suite::program::{has, lab, passes, program, stderr, stdout, succeeded};
use std::process::Command;

/// A model and a training that take a moment.
const SMALL: &str = "--embd 32 --steps 5";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1",
        "--ranks 2 --experts 4 --top 1",
        "--ranks 3 --ascii",
        "--ranks 2 --experts 2 --top 2 --z-loss 0.001",
        "--ranks 4 --dropout 0.1 --grad-accum 2 --aux-loss 0.1",
        "--ranks 2 --aux-scope model",
        "--ranks 2 --dtype bf16",
        "--ranks 2 --reduce-dtype bf16",
        "--bias --scores sigmoid --groups 4 --routed-scaling 2.5 --shared 1",
        "--ranks 2 --bias --grad-accum 2 --dense-layers 1",
        "--ranks 2 --capacity 1.25",
    ] {
        passes("lab13", &[&format!("{SMALL} {flags}")]);
    }
}

/// Experts among the ranks of other axes: losses, norms, balancing losses and bytes.
#[test]
fn meshes_train_what_one_rank_trains() {
    for strategy in [
        "dp=2,ep=2",
        "dp=2",
        "dp=2,cp=2,ep=4,zero=3",
        "cp=2,ep=2,cp-comm=ring,zero=1",
        "dp=4,ep=2",
        "dp=4,ep=2,zero=1",
        "dp=4,ep=2,zero=3",
        "dp=4,ep=4,zero=2,recompute=full",
        "dp=2,pp=2,ep=2,m=2",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
        "dp=2,tp=2,cp=2,ep=4,zero=1",
        "dp=2,tp=2,ep=2,zero=3 --bias",
        "dp=2,pp=2,ep=2,m=2 --bias --scores sigmoid --shared 1",
        "dp=2,tp=2,ep=2 --capacity 1",
        "dp=2,pp=2,ep=2,zero=1 --aux-scope model",
        "pp=2,chunks=2,m=4 --aux-scope model --layers 4 --dense-layers 1",
        "pp=4,m=2 --aux-scope model --layers 4 --aux-loss 0",
    ] {
        passes("lab13", &[&format!("{SMALL} --strategy {strategy}")]);
    }
}

/// Nothing is wrong with the ranks where the rate makes much of each rounding, and of each choice.
#[test]
fn no_rate_is_a_mistake_of_the_ranks() {
    const RATE: &str = "--lr 0.1 --warmup 0 --embd 32 --layers 1";
    const GROWN: &str = "compared: 1 of 5 steps. At this rate roundings grow";
    for flags in [
        "--steps 5 --ranks 2 --dtype bf16",
        "--steps 5 --ranks 4 --dtype bf16 --bias",
        "--steps 5 --ranks 2 --reduce-dtype bf16",
        "--steps 5 --strategy dp=2,tp=2,ep=2 --dtype bf16",
    ] {
        let shown = succeeded(&lab("lab13", &format!("{RATE} {flags}")));
        has(&shown, &[GROWN, ": 1 loss within 0.0010"]);
    }
    // How uneven they are depends on the processor's sums: in tiles no expert has twice its share.
    let dir = tempfile::tempdir().unwrap();
    let mut vectors = Command::new(program("lab13"));
    vectors.current_dir(dir.path()).env("SHARDLAB_SIMD", "vectors");
    let flags = format!("{RATE} --ranks 4 --dtype bf16");
    let shown = succeeded(&vectors.args(flags.split_whitespace()).output().unwrap());
    has(
        &shown,
        &[GROWN, "at the end an expert gets ", " times its share, and with one rank"],
    );
    // In f32 roundings stay small for so long, and choices are no more even.
    let shown = succeeded(&lab("lab13", &format!("{RATE} --ranks 2")));
    has(&shown, &["5 losses within 0.000010", "at the end an expert gets "]);
    assert!(!shown.contains("roundings grow"), "{shown}");
    // At the lab's own rate bf16 compares as many losses as f32.
    let shown = succeeded(&lab("lab13", &format!("{SMALL} --ranks 2 --dtype bf16")));
    has(&shown, &[": 5 losses within 0.0010", "roundings change at most "]);
    assert!(!shown.contains("roundings grow"), "{shown}");
}

/// What a killed run has left goes, and what another run holds stays.
#[test]
fn the_folder_of_a_killed_run_is_taken_away() {
    let out = tempfile::tempdir().unwrap();
    let lock = |name: &str| {
        let folder = out.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::File::create(folder.join("writer.lock")).unwrap()
    };
    drop(lock("resumed-1"));
    let held = lock("resumed-2");
    held.lock().unwrap();
    std::fs::create_dir(out.path().join("mine")).unwrap();
    passes("lab13", &[&format!("{SMALL} --ranks 2 --out {}", out.path().display())]);
    let left = std::fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["mine", "resumed-2"]);
}

/// The verdict comes first, whatever becomes of the file.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_does_not_take_the_verdicts_place() {
    let output = lab("lab13", &format!("{SMALL} --ranks 2 --metrics /dev/full"));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), &["dp=2,ep=2,zero=1: 5 losses within"]);
    has(&stderr(&output), &["cannot write to /dev/full", "help: free some space there"]);
}
