//! lab06 as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{failed, has, lab, passes, stderr, succeeded};
use std::process::Output;

/// A model of 8 layers that takes no time, at its own pace.
const SMALL: &str = "--layers 8 --heads 2 --embd 16 --block 8 --batch 2 --pace 0";

fn small(flags: &str) -> Output {
    lab("lab06", &format!("{SMALL} {flags}"))
}

/// Its checks: the pipeline trains what one rank trains, and keeps as many activations as its list
/// says.
#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--schedule gpipe --partition parameters",
        "--schedule interleaved",
        "--schedule interleaved --group 8",
        "--schedule interleaved --stages 3 --group 4 --micro-batches 7",
        "--schedule zero-bubble",
        "--stages 2 --micro-batches 1 --dropout 0.1",
        "--compare --micro-batches 3",
        // All inputs come before the first backward pass anyway.
        "--break early-recv --schedule gpipe",
    ] {
        passes("lab06", &[&format!("{SMALL} {flags}")]);
    }
    let bench = "--bench --layers 4 --heads 2 --embd 16 --block 8";
    passes("lab06", &["--dry-run --compare", bench]);
}

/// Both shares are of one formula: what is 1/5 of the step is 1/4 of the work in it.
#[test]
fn the_bubble_is_by_formula_in_both_denominators() {
    for (flags, step, work) in [
        ("--stages 3 --layers 10", "20.0%", "25.0%"),
        ("--stages 2 --layers 4", "11.1%", "12.5%"),
        ("--stages 2 --layers 7 --schedule interleaved --chunks 2", "5.9%", "6.2%"),
    ] {
        let tiny = "--heads 2 --embd 16 --block 8 --batch 2 --pace 0 --steps 1";
        let text = succeeded(&lab("lab06", &format!("{tiny} {flags}")));
        let row = text.split("  bubble   ").nth(1).unwrap().replace('\n', " ");
        let row = row.split_whitespace().collect::<Vec<_>>().join(" ");
        has(&row, &[&format!("= {step} of the step, or {work} of the time in which")]);
    }
}

#[test]
fn what_would_never_end_is_named_before_anything_runs() {
    for (flags, error) in [
        (
            "skip-recv",
            &[
                "rank 3 would run F0.7 without its input",
                "needs the result of F0.7 from rank 2",
            ][..],
        ),
        (
            "early-recv",
            &[
                "deadlock: 4 ranks",
                "rank 2  waits for the result of B0.0 from rank 3",
                "rank 3  waits for the result of F0.2",
            ],
        ),
        (
            "small-group",
            &["deadlock: 4 ranks", "rank 3  waits for the result of B1.0 from rank 0"],
        ),
    ] {
        let output = small(&format!("--break {flags}"));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{flags}");
        has(&stderr(&output), error);
        has(&stderr(&output), &["help: "]);
    }
}

#[test]
fn a_table_that_is_not_tied_trains_on_and_is_noticed() {
    let output = small("--break untied --steps 12 --warmup 2");
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    failed(
        &output,
        1,
        "the pipeline's losses are not one rank's; the pipeline trained a different model",
    );
    let losses = text.lines().find(|line| line.starts_with("  loss ")).unwrap();
    let numbers: Vec<f64> = losses
        .split_whitespace()
        .filter(|word| word.contains('.'))
        .map(|n| n.parse().unwrap())
        .collect();
    assert!(numbers.len() == 2 && numbers[1] < numbers[0], "it trains: {losses}");
}

#[test]
fn recomputation_keeps_fewer_bytes() {
    let text = succeeded(&small("--recompute 1"));
    let kept = |row: &str| {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(row))
            .unwrap_or_else(|| panic!("{text}"));
        let words: Vec<&str> = line.split("  ").filter(|cell| !cell.trim().is_empty()).collect();
        let (number, unit) = words[1].trim().split_once(' ').unwrap();
        number.parse::<f64>().unwrap() * if unit == "MB" { 1000.0 } else { 1.0 }
    };
    assert!(kept("each block's input") < 0.5 * kept("all activations"), "{text}");
}

/// Rank 7's first lines in the source's log, which numbers its ranks over the tensor groups: rank 3
/// here.
#[test]
fn an_order_is_printed_as_the_log_has_it() {
    let text =
        succeeded(&lab("lab06", "--print-order 3 --schedule interleaved --chunks 4 --group 8"));
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(lines.len(), 128);
    assert_eq!(
        lines[..3],
        [
            "rank 3 forward start tensor 0",
            "rank 3 forward finished tensor 0",
            "rank 3 forward start tensor 1"
        ]
    );
    assert_eq!(lines[50], "rank 3 backward start tensor 0");
}
