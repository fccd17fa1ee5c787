//! lab12 as its users start it: jobs whose checks hold, a full disk, a ring's memory.
//! `tests/screens/lab12.txt` has what it shows.

use crate::suite::program::{has, lab, passes, stderr, succeeded};

/// A model of 25,280 parameters and less, for some vocabulary.
const SMALL: &str = "--layers 2 --heads 4 --embd 32 --steps 3";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1",
        "--ranks 2 --dropout 0.2 --comm gather",
        "--ranks 3 --documents 1 --comm ring",
        "--ranks 4 --slices contiguous --comm ulysses",
        "--ranks 2 --dtype bf16 --reduce-dtype bf16",
        "--ranks 2 --reduce-dtype bf16",
        "--strategy dp=2,cp=2,zero=3,cp-comm=ulysses",
    ] {
        passes("lab12", &[&format!("{SMALL} {flags}")]);
    }
    let resharded = "--heads 2 --embd 16 --block 8 --steps 4 --save-after 2";
    passes(
        "lab09",
        &[&format!(
            "{resharded} --from dp=2,cp=2,zero=1,cp-comm=ring --to dp=3,zero=3 tp=2,cp=2"
        )],
    );
}

/// The verdict comes first, whatever becomes of the file.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_does_not_take_the_verdicts_place() {
    let output = lab("lab12", &format!("{SMALL} --ranks 2 --metrics /dev/full"));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    has(&text, &["check    cp=2,zero=1,cp-comm=ring: losses within"]);
    has(&stderr(&output), &["cannot write to /dev/full", "help: free some space there"]);
}

/// What a ring is for: a rank has two blocks of keys at a time, and with a gather all of them.
#[test]
fn a_ring_holds_less_while_it_attends() {
    let text = succeeded(&lab("lab12", &format!("{SMALL} --block 512 --documents 1")));
    assert!(!text.contains("this batch"), "{text}");
    let row = text.lines().find(|line| line.starts_with("  attending")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let bytes = |cell: usize| {
        let number: f64 = cells[2 * cell - 1].parse().unwrap();
        number * if cells[2 * cell] == "kB" { 1e3 } else { 1e6 }
    };
    let [gather, ring] = [bytes(2), bytes(3)];
    assert!(ring < 0.7 * gather && gather < bytes(1), "{row}");
}
