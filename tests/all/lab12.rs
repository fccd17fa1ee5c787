//! lab12 as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{has, lab, passes, stderr, succeeded};

/// A model of 25,280 parameters and less, for some vocabulary.
const SMALL: &str = "--layers 2 --heads 4 --embd 32 --steps 3";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "",
        "--ranks 1",
        "--ranks 2 --dropout 0.2 --comm gather",
        "--ranks 3 --documents 1 --comm ring",
        "--ranks 4 --slices contiguous --comm ulysses",
        "--ranks 2 --dtype bf16",
        "--ranks 2 --dtype bf16 --reduce-dtype bf16",
        "--ranks 2 --reduce-dtype bf16",
        "--strategy dp=2,cp=2,zero=3,cp-comm=ulysses",
        "--strategy dp=2,tp=2,pp=2,cp=2,m=2,zero=1,sp",
    ] {
        passes("lab12", &[&format!("{SMALL} {flags}")]);
    }
    passes("lab12", &["--show bytes --ascii", "--dry-run"]);
    let resharded = "--heads 2 --embd 16 --block 8 --steps 4 --save-after 2";
    passes(
        "lab09",
        &[&format!(
            "{resharded} --from dp=2,cp=2,zero=1,cp-comm=ring --to dp=3,zero=3 tp=2,cp=2"
        )],
    );
}

/// Each mistake trains on, and exactly these checks see it.
#[test]
fn mistakes_look_plausible_and_are_noticed() {
    let checks = ["the loss", "every gradient", "one token", "bytes sent"];
    for (mistake, noticed) in [
        ("documents", &["the loss", "every gradient", "one token"][..]),
        ("stale-kv", &["every gradient"]),
        ("shift", &["the loss", "every gradient"]),
        ("own-count", &["the loss", "every gradient"]),
        ("loss-scale", &["every gradient"]),
        ("no-rescale", &["the loss", "every gradient"]),
        ("positions", &["the loss", "every gradient"]),
        ("bf16-partials", &["every gradient"]),
    ] {
        let output = lab("lab12", &format!("--break {mistake}"));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for check in checks {
            let at = lines
                .iter()
                .position(|line| line.starts_with("  check") && line.contains(check));
            let at = at.unwrap_or_else(|| panic!("{check} is missing in\n{text}"));
            // A long claim has its result on the next line.
            let marked = lines[at..].iter().find(|line| line.ends_with(['✓', '✗'])).unwrap();
            let fails = marked.ends_with('✗');
            assert_eq!(fails, noticed.contains(&check), "{mistake}: {check}\n{text}");
        }
        assert_eq!(output.status.code(), Some(1), "{mistake}");
    }
    let error = stderr(&lab("lab12", "--break loss-scale"));
    has(&error, &["their norm is 4.000 of it"]);
}

/// The model is right, and one rank has most of the work: both orders are on the screen.
#[test]
fn a_contiguous_order_is_slow_beside_the_zig_zag_one() {
    let output = lab("lab12", &format!("{SMALL} --break contiguous"));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    for row in ["  contiguous  ", "  zig-zag     ", "  this batch  "] {
        assert_eq!(text.lines().filter(|line| line.starts_with(row)).count(), 1, "{row}\n{text}");
    }
    let failed: Vec<&str> = text.lines().filter(|line| line.ends_with('✗')).collect();
    assert_eq!(failed.len(), 1, "{text}");
    has(failed[0], &["in contiguous order all compute equally much", "1.71 of the mean"]);
    has(&stderr(&output), &["a rank that computes 1.71 times the mean"]);
}

/// What bf16 rounds can hide a mistake: then the screen says so.
#[test]
fn a_mistake_that_bf16_hides_is_told() {
    let text = succeeded(&lab("lab12", &format!("{SMALL} --dtype bf16 --break bf16-partials")));
    has(
        &text,
        &["note     no check notices the mistake: it changes less than bf16 may round"],
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

#[test]
fn what_ranks_cannot_share_is_refused() {
    for (flags, says) in [
        (
            "--ranks 3 --block 64",
            "sequences of 64 tokens cannot be cut into 6 equal chunks",
        ),
        (
            "--strategy cp=8,cp-comm=ulysses",
            "8 context ranks cannot exchange 4 key and value heads",
        ),
        ("--break documents --ranks 1", "--break needs ranks that can differ"),
        ("--documents 0", "give a whole number from 1"),
        ("--block 1 --ranks 1", "--documents 3 do not fit into --block 1"),
        ("--break stale-kv --comm ulysses", "this mistake is one of rounds"),
        ("--strategy cp=2 --block 7", "divided by is --strategy dp=1"),
        ("--strategy dp=16777216,tp=65536,pp=65536,cp=65536", "is more than 2^30 ranks"),
        ("--strategy cp=2 --ranks 2", "both say dp"),
    ] {
        let output = lab("lab12", flags);
        assert_eq!(output.status.code(), Some(2), "{flags}");
        has(&stderr(&output), &[says]);
    }
}

#[test]
fn the_screen_is_45_lines() {
    crate::suite::program::fits(&succeeded(&lab("lab12", "")), 45);
}
