//! lab02 as its users start it: files, breaks, exit codes.

use crate::suite::program::{
    ends_quietly_on_a_closed_pipe, failed, lab, lab_in, passes, program, succeeded,
};
use std::process::Command;

/// Flags of a run that takes no time.
const TINY: &str = "--ranks 2 --batch 2 --steps 6 --log-interval 2";

/// The log lines, each as its names and values in order.
fn log_lines(text: &str) -> Vec<Vec<(&str, f64)>> {
    fn field(field: &str) -> (&str, f64) {
        let (name, value) = field.split_once('=').unwrap_or_else(|| panic!("{field}"));
        (name, value.replace(',', "").parse().unwrap_or_else(|_| panic!("{field}")))
    }
    text.lines()
        .filter(|line| line.starts_with("iter="))
        .map(|line| line.split(", ").map(field).collect())
        .collect()
}

#[test]
fn a_run_writes_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.jsonl"), "from an earlier run").unwrap();
    let flags = "--ranks 3 --batch 4 --steps 12 --warmup-iters 2 --log-interval 5 --metrics m.jsonl --out a/b --all";
    let text = succeeded(&lab_in(dir.path(), "lab02", flags));
    let lines = log_lines(&text);
    assert_eq!(lines.iter().map(|line| line[0].1).collect::<Vec<_>>(), [2.0, 5.0, 10.0, 11.0]);
    for line in &lines {
        let names: Vec<&str> = line.iter().map(|field| field.0).collect();
        assert_eq!(names, ["iter", "loss", "sps", "dt", "dtf", "dtb"]);
        assert!(line[1..].iter().all(|field| field.1 > 0.0), "{line:?}");
        // Four digits of a second are printed, and whole samples.
        let rounded = 2e-3 + 1.0 / line[2].1;
        assert!(
            (line[2].1 * line[3].1 / 12.0 - 1.0).abs() < rounded,
            "sps is all ranks' samples by dt: {line:?}"
        );
    }

    let mut files: Vec<String> = std::fs::read_dir(dir.path().join("a/b"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        ["dt", "dtb", "dtf", "iter", "loss", "profile", "sps", "timeline"]
            .map(|name| format!("{name}.txt"))
    );
    for file in files {
        let saved = std::fs::read_to_string(dir.path().join("a/b").join(&file)).unwrap();
        assert!(text.contains(&saved), "{file} is not what was on the screen:\n{saved}");
    }

    let metrics = std::fs::read_to_string(dir.path().join("m.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 12);
    for (iter, line) in lines.iter().enumerate() {
        let number = |name: &str| line[name].as_f64().unwrap_or_else(|| panic!("{name} in {line}"));
        assert_eq!(
            (line["iter"].as_u64(), line["warmup"].as_bool()),
            (Some(iter as u64), Some(iter < 2))
        );
        for name in ["loss", "dtf", "all_reduce", "optimizer"] {
            assert!(number(name) > 0.0, "{name} in {line}");
        }
        assert!((number("sps") * number("dt") - 12.0).abs() < 1e-9);
        assert!(number("dtf") + number("dtb") + number("optimizer") <= number("dt"));
        assert!(number("all_reduce") < number("dtb"));
        assert_eq!(line.as_object().unwrap().len(), 9);
    }
}

/// Only times differ from run to run.
#[test]
fn runs_can_be_repeated() {
    let told = |seed: usize| {
        let text = succeeded(&lab("lab02", &format!("{TINY} --seed {seed}")));
        let losses: Vec<f64> = log_lines(&text).iter().map(|line| line[1].1).collect();
        (
            losses,
            text.lines().find(|line| line.contains("hold the same")).unwrap().to_string(),
        )
    };
    let first = told(1);
    assert_eq!(first.0.len(), 4);
    assert_eq!(told(1), first);
    let other = told(2);
    assert!(other.0 != first.0 && other.1 != first.1);
}

#[test]
fn each_break_is_exposed_by_its_check() {
    for (name, error) in [
        ("no-broadcast", "the ranks hold different models"),
        ("no-average", "the ranks hold different models"),
        ("same-batches", "ranks trained on the same samples"),
    ] {
        let text = failed(&lab("lab02", &format!("{TINY} --break {name}")), 1, error);
        // Without an average nothing was sent, and the row of the bytes says so.
        let crosses = if name == "no-average" { 2 } else { 1 };
        assert_eq!(text.matches('✗').count(), crosses, "{text}");
    }
}

#[test]
fn a_dry_run_is_arithmetic() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab_in(dir.path(), "lab02", "--dry-run --ranks 4"));
    // 837,632 parameters of 4 bytes; 2 x 3/4 of them sent; 6 FLOPs for 835,584 weights and 64
    // samples.
    for expected in ["3.35 MB", "6.70 MB", "5.03 MB", "0.321 GFLOP", "837,632 parameters"] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn other_jobs_pass_the_checks() {
    let one = "--ranks 1 --batch 2 --steps 3 --warmup-iters 0";
    passes(
        "lab02",
        &[one, "--batch 1 --steps 4 --log-interval 3 --log-all-ranks --ranks 3"],
    );
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab02"));
    ends_quietly_on_a_closed_pipe(command.current_dir(dir.path()).args(TINY.split(' ')));
}
