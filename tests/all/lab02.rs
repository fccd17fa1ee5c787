//! lab02 as its users start it: files, repetition, exit codes.

use crate::suite::program::{
    ends_quietly_on_a_closed_pipe, lab, lab_in, passes, program, succeeded,
};
use std::process::Command;

/// Flags of a run that takes no time.
const TINY: &str = "--ranks 2 --batch 2 --steps 6 --log-interval 2";

#[test]
fn a_run_writes_its_figures() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.jsonl"), "from an earlier run").unwrap();
    let flags = "--ranks 3 --batch 4 --steps 12 --warmup-iters 2 --log-interval 5 --metrics m.jsonl --out a/b --all";
    let text = succeeded(&lab_in(dir.path(), "lab02", flags));
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

/// The hash of a model says whether its weights have the same bits.
#[test]
fn runs_can_be_repeated() {
    let told = |seed: usize| {
        let text = succeeded(&lab("lab02", &format!("{TINY} --seed {seed}")));
        let mut lines = text.lines();
        lines.find(|line| line.contains("hold the same")).expect("a hash").to_string()
    };
    let first = told(1);
    assert_eq!(told(1), first);
    assert_ne!(told(2), first);
}

#[test]
fn a_dry_run_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    succeeded(&lab_in(dir.path(), "lab02", "--dry-run"));
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn other_jobs_pass_the_checks() {
    passes("lab02", &["--batch 1 --steps 4 --log-interval 3 --log-all-ranks --ranks 3"]);
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab02"));
    ends_quietly_on_a_closed_pipe(command.current_dir(dir.path()).args(TINY.split(' ')));
}
