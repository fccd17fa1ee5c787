//! lab06 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{failed, fits, has, program, stderr, succeeded};
use std::process::{Command, Output};

/// A model of 8 layers that takes no time, at its own pace.
const SMALL: &str = "--layers 8 --heads 2 --embd 16 --block 8 --batch 2";

fn lab06(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab06"));
    command
        .current_dir(dir.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab06 starts")
}

fn small(flags: &str) -> Output {
    let pace = if flags.contains("--pace") { "" } else { "--pace 0" };
    lab06(&format!("{SMALL} {pace} {flags}"))
}

#[test]
fn every_schedule_trains_what_one_rank_trains() {
    for (flags, says) in [
        (
            "--pace 2ms",
            &[
                "(p-1)/(m+p-1) = 27.3% of the step, or 37.5%",
                "8 micro-batches of 2 sequences x 8 tokens",
            ][..],
        ),
        ("--schedule gpipe --partition parameters", &["27.3%"]),
        (
            "--schedule interleaved",
            &["(p-1)/(mv+p-1)", "v = 2 chunks per rank", "0 4 ", "interleaved by 4"],
        ),
        ("--schedule interleaved --group 8 --ascii", &["interleaved by 8"]),
        (
            "--schedule interleaved --stages 3 --group 4 --micro-batches 7",
            &["no formula holds if 7 is no multiple of 3"],
        ),
        ("--schedule zero-bubble", &["▄ weights", "(p-1)(F+B-W)"]),
        ("--stages 2 --micro-batches 1 --dropout 0.1", &["50.0% of the step"]),
    ] {
        let text = succeeded(&small(flags));
        fits(&text, 47);
        assert!(!flags.contains("--ascii") || text.is_ascii(), "{text}");
        assert_eq!(
            text.matches(if flags.contains("--ascii") { " ok\n" } else { " ✓\n" }).count(),
            5,
            "{text}"
        );
        has(
            &text,
            &[
                "predicted: ",
                "measured: ",
                "rank 0 ",
                "bitwise equal",
                "live, by list",
                "Takeaway",
            ],
        );
        has(&text, says);
    }
}

/// The lists say how many activations each rank keeps, and the run keeps as many.
#[test]
fn all_schedules_are_compared_in_one_table() {
    let text = succeeded(&small("--compare --stages 4"));
    fits(&text, 40);
    for (schedule, live) in [
        ("gpipe", "8 8 8 8"),
        ("1f1b", "4 3 2 1"),
        ("interleaved by 4", "11 9 7 5 /2"),
        ("interleaved by 8", "15 13 11 9 /2"),
        ("zero-bubble", "4 4 4 4"),
    ] {
        let row = text
            .lines()
            .find(|line| line.trim_start().starts_with(schedule))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(row.contains(live), "{schedule}: {live}\n{text}");
    }
    has(&text, &["5 runs, 3 steps: losses are one rank's"]);
    // With fewer micro-batches than ranks, no interleaved schedule can run.
    let text = succeeded(&small("--compare --micro-batches 3"));
    assert!(!text.contains("interleaved by"), "{text}");
    has(&text, &["3 runs, ", "zero-bubble"]);
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
    // All inputs come before the first backward pass anyway.
    succeeded(&small("--break early-recv --schedule gpipe"));
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
    has(&text, &["step 2: expected ", ", found ", "every parameter is one rank's"]);
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
    has(
        &text,
        &["each block's input", "2 runs, 3 steps: losses are one rank's", "backward pass"],
    );
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
    let text = succeeded(&lab06("--print-order 3 --schedule interleaved --chunks 4 --group 8"));
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
    has(&text, &["4*(k div 16) + k mod 4"]);
    let all =
        succeeded(&lab06("--print-order --stages 2 --micro-batches 2 --schedule zero-bubble"));
    has(&all, &["rank 0 weights finished tensor 1", "rank 1 weights start tensor 0"]);
}

#[test]
fn a_plan_alone_is_drawn_without_training() {
    let text = succeeded(&lab06("--dry-run --compare"));
    has(
        &text,
        &[
            "gpipe: 165 ms per step, 27.3% of it bubble",
            "zero-bubble: 135 ms",
            "interleaved by 4: 143 ms",
        ],
    );
    assert!(!text.contains("check"), "{text}");
}

#[test]
fn what_no_pipeline_can_run_is_refused_with_what_would_do() {
    for (flags, message, help) in [
        ("--stages 9", "9 stages cannot share 8 layers", "at most 8 stages"),
        (
            "--schedule interleaved --chunks 3",
            "12 stages cannot share 8 layers",
            "more --layers",
        ),
        (
            "--schedule interleaved --micro-batches 3",
            "groups of 4 micro-batches, with 4 ranks",
            "--micro-batches 4",
        ),
        (
            "--schedule interleaved --micro-batches 10",
            "10 micro-batches in groups of 4 leave a group of 2, for 4 ranks",
            "--micro-batches 8, or 12",
        ),
        ("--schedule interleaved --group 2", "groups of 2 micro-batches", "4 to 8"),
        ("--chunks 2", "1f1b runs 1 chunk per rank, not 2", "--schedule interleaved"),
        ("--group 4", "--group is for --schedule interleaved", "leave --group out"),
        ("--stages 1", "one rank waits for no other", "--stages 2"),
        ("--micro-batches 0", "invalid value '0' for '--micro-batches <", "from 1 to"),
        (
            "--grad-accum 2",
            "invalid value '2' for '--grad-accum <GRAD_ACCUM>': a pipeline's micro-batches are its micro-steps",
            "--micro-batches",
        ),
        (
            "--init-from x",
            "invalid value 'x' for '--init-from <DIR>': this lab",
            "leave it out",
        ),
        ("--print-order 4", "--print-order 4: there is no rank 4", "0 to 3"),
    ] {
        let output = small(flags);
        failed(&output, 2, message);
        has(&stderr(&output), &[help]);
    }
    for flags in ["--pace 5", "--compare --break untied", "--schedule 2f2b", "--recompute -1"] {
        assert_eq!(small(flags).status.code(), Some(2), "{flags}");
    }
}

#[test]
fn a_benchmark_compares_schedules_with_one_rank_and_with_their_prediction() {
    let text = succeeded(&lab06("--bench --layers 4 --heads 2 --embd 16 --block 8"));
    fits(&text, 20);
    has(
        &text,
        &[
            "1 rank ",
            "1.00 x",
            "gpipe",
            "1f1b",
            "zero-bubble",
            "interleaved by 2",
            "speed-up",
            "off by",
        ],
    );
}

/// The log's end: two tensor ranks choose alone. An agreed choice trains the same bits.
#[test]
fn ranks_that_choose_disagree_or_agree() {
    let text = succeeded(&lab06("--dynamic"));
    has(
        &text,
        &[
            "rank 6   .. B0 F13 B1 F14 B2 F15 B3 F28\n",
            "rank 7   .. B0 F13 B1 F14 B2 F15 B3 B4\n",
        ],
    );
    has(
        &text,
        &[
            "rank 6   all_reduce \"forward pass\" in group tensor",
            "rank 7   all_reduce \"backward pass\"",
        ],
    );
    has(
        &text,
        &[
            "takes 111.7 in the",
            "105.7 if rank 6 chooses",
            "agreed choices train the same bits",
        ],
    );
    fits(&text, 30);
}
