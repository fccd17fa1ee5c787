//! lab02 as its users start it: flags, files, exit codes, what is on the screen.

use crate::suite::program::{self, failed, is_narrow, program, stderr, succeeded};
use std::path::Path;
use std::process::{Command, Output};

/// Flags of a run that takes no time.
const TINY: &str = "--ranks 2 --batch 2 --steps 6 --log-interval 2";

fn lab02(dir: &Path, flags: &str) -> Output {
    let mut command = Command::new(program("lab02"));
    command
        .current_dir(dir)
        .env("NO_COLOR", "")
        .args(flags.split_whitespace())
        .output()
        .expect("lab02 starts")
}

#[track_caller]
fn succeeds(dir: &Path, flags: &str) -> String {
    succeeded(&lab02(dir, flags))
}

#[track_caller]
fn fails(dir: &Path, flags: &str, code: i32, what: &str) -> String {
    failed(&lab02(dir, flags), code, what)
}

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
fn a_run_shows_trains_checks_and_writes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.jsonl"), "from an earlier run").unwrap();
    let flags = "--ranks 3 --batch 4 --steps 12 --warmup-iters 2 --log-interval 5 --metrics m.jsonl --out a/b --all";
    let text = succeeds(dir.path(), flags);
    for expected in [
        "What does a rank do in one iteration",
        "128 → 1,024 → 512 → 256 → 128 → 128",
        "837,632 parameters",
        "12 of 3 x 4 samples, 2 of them warm-up",
        "3 steps, 3 ranks compared with 1 rank",
        "bitwise equal ✓",
        "where the time went: mean of 3 ranks",
        "10 iterations",
        "waiting for other ranks",
        "  rank 2 │",
        " bytes per rank per step = 2(n-1)/n x 4 x 837,632 ✓",
        "all ranks hold the same model",
        "every rank drew its own samples",
        "the loss fell",
    ] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert!(!text.contains("below 500"), "another batch ends at another loss");
    assert!(!text.contains('\x1b'));
    is_narrow(&text);

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
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, used) = words.split_once(" used Application ").expect("what the job has used");
    let names = "resources: utime= stime= maxrss= inblock= oublock= minflt= majflt= nvcsw= nivcsw=";
    let found: Vec<&str> = used.split(' ').skip(1).take(10).collect();
    for (name, found) in names.split(' ').zip(found) {
        assert!(found.starts_with(name), "{name} {found}");
    }
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

/// The seed's settings: it came from 2,152 to 376 on four GPUs.
#[test]
fn the_loss_ends_below_500() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "");
    let lines = log_lines(&text);
    assert_eq!((lines[0][0].1, lines[lines.len() - 1][0].1), (1.0, 99.0));
    let first = lines[0][1].1;
    let last = lines[lines.len() - 1][1].1;
    assert!(
        (1800.0..2500.0).contains(&first) && (250.0..500.0).contains(&last),
        "{first} to {last}"
    );
    assert!(text.contains("the loss after 100 iterations is below 500"), "{text}");
    assert!(dir.path().join("runs/lab02/profile.txt").exists());
    is_narrow(&text);
}

/// Only times differ from run to run.
#[test]
fn runs_can_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let told = |seed: usize| {
        let text = succeeds(dir.path(), &format!("{TINY} --seed {seed}"));
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
    let dir = tempfile::tempdir().unwrap();
    for (name, error, plot) in [
        ("no-broadcast", "the ranks hold different models", "distance of the replicas"),
        ("no-average", "the ranks hold different models", "distance of the replicas"),
        (
            "same-batches",
            "ranks trained on the same samples",
            "different samples in a step",
        ),
    ] {
        let text = fails(dir.path(), &format!("{TINY} --break {name}"), 1, error);
        assert!(text.contains(plot), "{text}");
        // Without an average nothing was sent, and the row of the bytes says so.
        let crosses = if name == "no-average" { 2 } else { 1 };
        assert_eq!(text.matches('✗').count(), crosses, "{text}");
    }
    fails(
        dir.path(),
        "--ranks 1 --break no-average",
        2,
        "--break needs ranks that can differ",
    );
}

#[test]
fn bad_input_is_refused_before_work_starts() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    for (flags, what) in [
        ("--ranks 0", "--ranks 0 is out of range"),
        ("--ranks 100000", "--ranks 100000 is out of range"),
        ("--batch 0", "invalid value '0' for '--batch <"),
        ("--batch 99999999", "invalid value '99999999' for '--batch <"),
        ("--batch 1000000 --ranks 1000", "1000 ranks with --batch 1000000 take"),
        ("--steps 0", "invalid value '0' for '--steps <"),
        ("--steps 1", "invalid value '1' for '--steps <"),
        ("--steps 99999999999", "invalid value '99999999999' for '--steps <"),
        (
            "--warmup-iters 100",
            "--warmup-iters 100 leaves none of 100 iterations to measure",
        ),
        ("--log-interval 0", "invalid value '0' for '--log-interval <"),
        ("--lr 0", "invalid value '0' for '--lr <"),
        ("--lr nan", "invalid value 'nan' for '--lr <"),
        ("--lr inf", "invalid value 'inf' for '--lr <"),
        ("--metrics no/such/folder", "cannot write --metrics no/such/folder"),
        ("--out file", "cannot make the folder --out file"),
        ("--break the-bank", "invalid value 'the-bank'"),
    ] {
        let text = fails(dir.path(), flags, 2, what);
        assert!(!text.contains("iter="), "{text}");
    }
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn a_dry_run_is_arithmetic() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "--dry-run --ranks 4");
    // 837,632 parameters of 4 bytes; 2 x 3/4 of them sent; 6 FLOPs for 835,584 weights and 64
    // samples.
    for expected in ["3.35 MB", "6.70 MB", "5.03 MB", "0.321 GFLOP", "837,632 parameters"] {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
    assert!(!dir.path().join("runs").exists());
}

#[test]
fn ascii_means_ascii() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), &format!("{TINY} --ascii --out o"));
    assert!(text.is_ascii(), "{text}");
    for file in std::fs::read_dir(dir.path().join("o")).unwrap() {
        let path = file.unwrap().path();
        assert!(std::fs::read_to_string(&path).unwrap().is_ascii(), "{}", path.display());
    }
}

#[test]
fn all_ranks_can_log() {
    let dir = tempfile::tempdir().unwrap();
    let text =
        succeeds(dir.path(), "--batch 1 --steps 4 --log-interval 3 --log-all-ranks --ranks 3");
    for rank in 0..3 {
        // Iterations 1 and 3: the first after the warm-up, the one that is due, which is also the
        // last.
        assert_eq!(text.matches(&format!("[{rank}] iter=")).count(), 2, "{text}");
    }
}

#[test]
fn one_rank_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeds(dir.path(), "--ranks 1 --batch 2 --steps 3 --warmup-iters 0");
    assert!(text.contains("where the time went: 1 rank\n"), "{text}");
    let waiting = text.lines().find(|line| line.contains("waiting for other ranks")).unwrap();
    assert!(waiting.trim_start().starts_with("0.000    0.0%"), "{waiting}");
}

#[test]
fn divergence_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab02(dir.path(), &format!("{TINY} --lr 1e30"));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("training has diverged\nhelp: lower --lr"),
        "{}",
        stderr(&output)
    );
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_ends_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab02"));
    program::ends_quietly_on_a_closed_pipe(command.current_dir(dir.path()).args(TINY.split(' ')));
}
