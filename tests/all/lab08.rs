//! lab08 as its users start it: its checks, its metrics, its mistake, exit codes.

use crate::suite::program::{failed, has, lab, lab_in, passes, stderr, stdout, succeeded};
use std::process::Output;

/// A tiny model whose steps 16 and 17 are bad.
const SMALL: &str = "--layers 1 --embd 16 --block 16 --lr 0.01";
const BAD: &str = "--steps 30 --poison 16 17 --save-every 8";

fn small(flags: &str) -> Output {
    lab("lab08", &format!("{SMALL} {BAD} {flags}"))
}

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --grad-accum 1 --batch 16",
        "--ranks 3 --zero 3 --sampler seeds",
        "--zero 0 --dropout 0.1",
        "--policy count",
        "--policy auto",
    ] {
        passes("lab08", &[&format!("{SMALL} {BAD} {flags}")]);
    }
    passes("lab08", &[&format!("{SMALL} --steps 30 --no-poison")]);
}

/// As the source prints it, a skipped step has a time, a speed and the last norm: a mean over such
/// lines is far too large, and the check says by how much.
#[test]
fn a_log_as_the_sources_has_speeds_that_nothing_trained_for() {
    let folder = tempfile::tempdir().unwrap();
    let flags = format!("{SMALL} --steps 6 --no-poison --train-range-to-skip 3 4 --log-skipped");
    let text = succeeded(&lab_in(folder.path(), "lab08", &flags));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<&str> = flat.split("iteration= ").skip(1).collect();
    assert_eq!(lines.len(), 6, "{text}");
    let field = |line: &str, name: &str| -> f64 {
        let (_, after) = line.split_once(name).unwrap_or_else(|| panic!("{name} in {line}"));
        after.split_whitespace().next().unwrap().parse().unwrap()
    };
    for line in &lines[2..4] {
        assert!(!line.contains("lm loss="), "{line}");
        assert_eq!(field(line, "grad_norm="), field(lines[1], "grad_norm="), "{line}");
        let speed = |line| field(line, "tokens_per_gpu_per_second_tgs=");
        assert!(speed(line) > 2.0 * speed(lines[1]), "{line}");
    }
    has(&flat, &["check lines with a loss give the speed", "a mean over all lines:"]);
    let both = lab_in(folder.path(), "lab08", &format!("{flags} --log"));
    failed(&both, 2, "the argument '--log-skipped' cannot be used with '--log'");
}

/// Steps that are skipped have neither loss nor norm in the log and in the file, and the other
/// lines have their fields.
#[test]
fn skipped_steps_are_logged_and_stay_out_of_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let flags = format!("{SMALL} --steps 6 --train-range-to-skip 2 3 5 5 --log --metrics m.jsonl");
    let text = succeeded(&lab_in(folder.path(), "lab08", &flags));
    let lines: Vec<&str> = text
        .split("iteration= ")
        .skip(1)
        .map(|line| line.split(" |\n  check").next().unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{text}");
    for (i, line) in lines.into_iter().enumerate() {
        let skipped = [2, 3, 5].contains(&(i + 1));
        for field in [
            "lm loss=",
            "grad_norm=",
            "samples_per_second=",
            "elapsed_time_per_iteration_ms=",
        ] {
            assert_eq!(line.contains(field), !skipped, "{field} {line}");
        }
        has(line, &[&format!("consumed_samples={:>12}", 16 * (i + 1)), "learning_rate="]);
        has(line, &[&format!("number_of_skipped_iterations={:>3}", usize::from(skipped))]);
    }
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

#[test]
fn spikes_are_found_in_any_metrics_file() {
    let folder = tempfile::tempdir().unwrap();
    succeeded(&lab_in(folder.path(), "lab08", &format!("{SMALL} {BAD}")));
    let text = succeeded(&lab_in(folder.path(), "lab08", "--find-spikes"));
    has(
        &text,
        &[
            "in runs/lab08/metrics.jsonl",
            "\n  16 to 17 ",
            "\n  --train-range-to-skip 16 17\n",
        ],
    );
    // lab03 writes more fields per line.
    let line = |step: usize, loss: f64| {
        format!("{{\"step\":{step},\"loss\":{loss},\"dt\":0.1,\"mfu\":3.0}}\n")
    };
    let of = |bad: usize| {
        (1..40)
            .map(|step| line(step, if step == bad { 7.0 } else { 3.0 }))
            .collect::<String>()
    };
    std::fs::write(folder.path().join("lab03.jsonl"), of(21)).unwrap();
    has(
        &succeeded(&lab_in(folder.path(), "lab08", "--find-spikes lab03.jsonl")),
        &["--train-range-to-skip 21 21\n"],
    );
    std::fs::write(folder.path().join("lab03.jsonl"), of(99)).unwrap();
    let text = succeeded(&lab_in(folder.path(), "lab08", "--find-spikes lab03.jsonl"));
    has(&text, &["none in lab03.jsonl: 39 losses, and none is above its limit"]);
}

/// The ranks average gradients of different steps, and nothing fails until one of them has no step
/// left.
#[test]
fn one_rank_that_skips_alone_is_named_at_the_end() {
    let output = small("--break one-rank");
    failed(&output, 1, "deadlock: all ranks wait for each other");
    has(
        &stderr(&output),
        &[
            "\n  rank 0  waits in start_reduce in group data",
            "\n  rank 1  waits in all_reduce (sum, 40 f64, src/train/evaluate.rs",
        ],
    );
}
