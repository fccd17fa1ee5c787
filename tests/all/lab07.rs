//! lab07 as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{lab, passes};

/// A model of 25,280 parameters if it has 2 layers, for some vocabulary.
const SMALL: &str = "--heads 4 --embd 32 --block 16 --batch 1 --warmup 2 --lr 0.01";

/// Its checks: any mesh trains what one rank trains.
#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --tp 1 --pp 1",
        "--ranks 3 --tp 1 --pp 1",
        "--ranks 4 --tp 4 --pp 1 --make-vocab-size-divisible-by 8",
        "--ranks 2 --tp 1 --pp 2 --schedule gpipe --zero 0",
        "--ranks 8 --layers 4 --schedule interleaved --order data --dropout 0.1",
        "--ranks 8 --schedule zero-bubble --zero 0 --micro-batches 3",
        "--ranks 6 --tp 1 --pp 3 --layers 7 --chunks 2 --schedule interleaved --micro-batches 6",
        // Without data ranks there is nothing to distribute the optimizer to.
        "--ranks 4 --layers 4 --chunks 2 --schedule interleaved --report run",
    ] {
        let layers = if flags.contains("--layers") { "" } else { "--layers 2" };
        passes("lab07", &[&format!("{SMALL} {layers} {flags} --steps 6")]);
    }
    passes("lab07", &["--dry-run --ranks 64 --tp 4 --pp 4"]);
}

/// Each mistake trains on, and exactly these checks see it.
#[test]
fn mistakes_look_plausible_and_are_noticed() {
    let checks = [
        "losses are one",
        "first gradient norm",
        "clip by one norm",
        "copies of parameters",
        "bytes on each axis",
    ];
    for (mistake, unsound) in [
        ("local-norm", &checks[..4]),
        ("untied", &[checks[0], checks[1], checks[3], checks[4]]),
        ("early-average", &checks[..2]),
    ] {
        let output = lab("lab07", &format!("{SMALL} --layers 2 --steps 12 --break {mistake}"));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        for check in checks {
            let line =
                text.lines().find(|line| line.starts_with("  check") && line.contains(check));
            let mark = line
                .unwrap_or_else(|| panic!("{check} is missing in\n{text}"))
                .chars()
                .last()
                .unwrap();
            assert_eq!(
                mark,
                if unsound.contains(&check) { '✗' } else { '✓' },
                "{mistake}: {check}\n{text}"
            );
        }
        assert_eq!(output.status.code(), Some(1), "{mistake}");
        let row = |step: &str| {
            let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let row = rows.find(|row| row.len() == 5 && row[0] == step && row[1].contains('.'));
            row.expect(step)[1].parse::<f64>().unwrap()
        };
        assert!(row("12") < row("1"), "{mistake}: it trains\n{text}");
    }
}
