//! lab08 as its users start it: jobs whose checks hold, the metrics file, the tokens of two runs.
//! `tests/screens/lab08.txt` has what it shows.

use crate::suite::program::{lab, lab_in, passes, stdout, succeeded};

/// A tiny model whose steps 16 and 17 are bad.
const SMALL: &str = "--layers 1 --embd 16 --block 16 --lr 0.01";
const BAD: &str = "--steps 30 --poison 16 17 --save-every 8";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --grad-accum 1 --batch 16",
        "--ranks 3 --zero 3 --sampler seeds",
        "--zero 0 --dropout 0.1",
        "--policy count",
    ] {
        passes("lab08", &[&format!("{SMALL} {BAD} {flags}")]);
    }
}

#[test]
fn skipped_steps_have_no_loss_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let flags = format!("{SMALL} --steps 6 --train-range-to-skip 2 3 5 5 --metrics m.jsonl");
    succeeded(&lab_in(folder.path(), "lab08", &flags));
    let metrics = std::fs::read_to_string(folder.path().join("m.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines.iter().map(|line| line["loss"].is_null()).collect::<Vec<_>>(),
        [false, true, true, false, true, false]
    );
    assert_eq!(
        lines.iter().map(|line| line["skipped"] == true).collect::<Vec<_>>(),
        [false, true, true, false, true, false]
    );
}

/// The source's own check: a skipped step draws what it draws without skipping, micro-step by
/// micro-step.
#[test]
fn the_same_tokens_are_drawn_with_and_without_skipping() {
    let tokens = |flags: &str| -> Vec<String> {
        let text = stdout(&lab("lab08", &format!("{SMALL} --steps 4 --print-tokens {flags}")));
        text.lines()
            .filter(|line| line.starts_with("iteration=") || line.starts_with("  ["))
            .map(String::from)
            .collect()
    };
    let all = tokens("");
    assert_eq!(
        (all.len(), all[0].as_str(), all[9].as_str()),
        (48, "iteration=1 [0/4]: [2, 17]", "iteration=1 [3/4]: [2, 17]")
    );
    assert_eq!(tokens("--train-range-to-skip 2 3"), all);
    assert_ne!(tokens("--train-range-to-skip 2 3 --policy one-batch"), all);
}
