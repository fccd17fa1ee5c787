//! lab01 as its users start it: what is on the screen, files, exit codes.

use crate::suite::program::{self, failed, succeeded};
use std::path::Path;
use std::process::{Command, Output};

fn lab01(dir: &Path, flags: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab01"));
    command.current_dir(dir).env("NO_COLOR", "").args(flags.split_whitespace()).output().expect("lab01 starts")
}

#[track_caller]
fn succeeds(flags: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab01(dir.path(), flags));
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "wider than 80: {line}");
    }
    assert_eq!(text.matches("Take along").count(), 1, "{text}");
    text
}

#[track_caller]
fn has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[test]
fn a_run_shows_counts_times_predicts_and_checks() {
    let text = succeeds("--up-to 1");
    has(
        &text,
        &[
            "What does a collective do",
            "all-reduce: everyone gets the sum of what all brought\n  rank 0 │    1     2     3     4      rank 0 │ 1111  2222  3333  4444\n",
            "  rank 2 │  100   200   300   400      rank 2 │  100   200   300   400\n",
            "  rank 1 │ ·  ·  ·  ·   →  rank 1 │ 1  2  3  4\n",
            "  rank 3 │    ·     ·     ·  4000      rank 3 │    1    20   300  4000\n",
            "  rank 3 │ ·  ·  ·  ·      rank 3 │ ·  ·  ·  4\n",
            "How: all-reduce by ring, 4 ranks",
            "  step 1 of 6: ",
            "  rank 1 │[  10]   20    30    40   →  rank 1 │   10    20    30 [  44]\n",
            "  step 3 of 6: ",
            "  rank 3 │[1110] 2200  3000  4000      rank 3 │ 1110  2200  3000 [4444]\n",
            "  step 6 of 6: ",
            "rank 0 has sent 6 messages, 48 bytes; its array has 32",
            "  ring                    6         6  20.2 kB  2(n-1) steps of S/n ✓\n",
            "  recursive-doubling      2         2  26.9 kB  log2 n steps of S ✓\n",
            "all-reduce on 4 ranks",
            "Fastest here: ",
            "768 ranks, aurora",
            "  recursive-doubling  1.00 KiB  256 KiB ",
            "every algorithm does what its collective does ……………………………… 19 of 19 ✓",
            "steps, messages, bytes are as the formulas say …………………………… 19 of 19 ✓",
        ],
    );
    assert!(!text.contains("step 2 of 6") && !text.contains('\x1b'), "{text}");
    assert!(succeeds("--up-to 1 --ascii --ranks 3").is_ascii());
}

#[test]
fn any_number_of_ranks_is_shown() {
    let alone = succeeds("--ranks 1");
    has(&alone, &["one rank has nobody to talk to", "rank 0 │ 1   →  rank 0 │ 1\n", "19 of 19 ✓"]);
    assert!(!alone.contains("What it costs"), "{alone}");
    has(&succeeds("--ranks 2 --up-to 1"), &["  step 1 of 2: ", "rank 0 │  1 [ 2]  →  rank 0 │[11]  2\n"]);
    has(
        &succeeds("--ranks 7 --up-to 1"),
        &["by ring, the first 5 of 7 ranks", "  step 8 of 8: ", "log2 p + 2 steps of S ✓"],
    );
}

#[test]
fn what_is_broken_ends_in_an_error_that_names_every_rank() {
    for (how, says, ranks) in [
        (
            "missing-rank",
            "the ranks are in different calls: ",
            "\n  rank 3  waits in barrier (src/study/collectives/breaking.rs:",
        ),
        ("wrong-length", "the ranks are in different calls: ", "\n  rank 3  waits in all_reduce (sum, 3 f32, "),
        ("wrong-op", "the ranks are in different calls: ", "\n  rank 3  waits in all_reduce (max, 4 f32, "),
        (
            "wrong-order",
            "the ranks are in different calls: ",
            "\nhelp: calls that differ in nothing else are compared by",
        ),
        (
            "early-exit",
            "rank 3 ended, and never entered all_reduce (",
            "\n  rank 3  ended after all_reduce (sum, 4 f32, ",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let output = lab01(dir.path(), &format!("--break {how} --out o"));
        assert!(failed(&output, 1, says).contains(&format!("What goes wrong: {how}\n\n  Rank 3 ")));
        let error = program::stderr(&output);
        has(&error, &[ranks, "\n  rank 0  ", "\n  rank 1  ", "\n  rank 2  "]);
        assert!(error.ends_with("the last 64 calls of every rank are in o/flight.jsonl\n"), "{error}");
        assert!(dir.path().join("o/flight.jsonl").is_file());
    }
}

#[test]
fn a_slow_rank_is_named_and_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab01(dir.path(), "--break slow-rank --deadline 4");
    has(
        &succeeded(&output),
        &["Rank 3 waited least: the others waited ", "the slow rank is the one that all waited for"],
    );
    let said = program::stderr(&output);
    assert_eq!(said.matches("notice: rank 3 is a straggler: ").count(), 1, "{said}");
    failed(&lab01(dir.path(), "--break slow-rank --deadline 0"), 2, "invalid value");
    failed(&lab01(dir.path(), "--break slow-rank --ranks 1"), 2, "--break needs ranks that can differ");
}

#[test]
fn step_by_step_shows_every_step_of_any_algorithm() {
    let ring = succeeds("--step-by-step");
    assert_eq!((ring.matches("\n  step ").count(), ring.matches(" of 6").count()), (6, 6), "{ring}");
    assert!(!ring.contains("How long"), "{ring}");
    let folded = succeeds("--step-by-step --algorithm rabenseifner --ranks 5");
    has(&folded, &["step 6 of 6", "  rank 1 │    10    20    30    40    50      │[11111 22222 33333 44444 55555]\n"]);
    let tree = succeeds("--step-by-step --collective broadcast");
    has(&tree, &["broadcast by tree", "step 2 of 2", "rank 1 │[1  2  3  4]  →  rank 1 │ 1  2  3  4\n"]);
    has(&succeeds("--step-by-step --algorithm auto"), &["all-reduce by recursive-doubling", "20 of 20"]);
    let pairs = succeeds("--step-by-step --collective all-to-all");
    has(&pairs, &["the first 3 of 4 ranks", "│ 100[200]300   ·  30 300"]);
}

#[test]
fn a_benchmark_prints_all_sizes_and_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab01(dir.path(), "--bench --up-to 1 --ranks 2 --collective all-gather --json b.json"));
    has(&text, &["  1.00 KiB  ", "  64.0 KiB  ", "  1.00 MiB  ", "busbw", "shared", "knee", "a x b bytes"]);
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.path().join("b.json")).unwrap()).unwrap();
    assert_eq!((&json["ranks"], &json["transport"]), (&2.into(), &"threads".into()));
    let ways = json["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 3);
    for way in ways {
        assert_eq!(way["collective"], "all-gather");
        let points = way["points"].as_array().unwrap();
        assert_eq!(
            points.iter().map(|point| point["bytes"].as_f64().unwrap()).collect::<Vec<_>>(),
            [1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0]
        );
        for point in points {
            let [bytes, seconds, algbw, busbw] =
                ["bytes", "seconds", "algbw", "busbw"].map(|name| point[name].as_f64().unwrap());
            assert!(
                seconds > 0.0 && (algbw * seconds / bytes - 1.0).abs() < 1e-9 && (busbw / algbw - 0.5).abs() < 1e-9,
                "{point}"
            );
        }
    }
    assert_eq!((&ways[1]["algorithm"], &ways[1]["steps"]), (&"ring".into(), &1.into()));
}

#[test]
fn a_simulated_link_is_never_faster_than_it_says() {
    let text = succeeds("--up-to 1 --link 3ms,100MB/s");
    has(&text, &["simulated, one for each rank: 100 MB/s, 3.00 ms", "no time is less than the simulator's"]);
    has(&text, &["\n  measured ", " times the simulator's, median of 12. Not checked: "]);
    assert_eq!(text.matches('✓').count(), 4 + 3, "{text}");
}

#[test]
fn a_picture_of_a_few_ranks_has_room_for_many() {
    // A digit for each rank: twenty of them are more than 64 bits hold.
    for ranks in [19, 20, 33, 64] {
        let text = succeeds(&format!("--step-by-step --ranks {ranks}"));
        has(&text, &[&format!("the first 5 of {ranks} ranks"), "  rank 4 │"]);
    }
}

#[test]
fn other_networks_are_predicted() {
    let text = succeeds("--simulate 1024 --network polaris");
    has(
        &text,
        &[
            "1,024 ranks, polaris",
            "4 GPUs a node",
            "  recursive-doubling  1.00 KiB ",
            "  rabenseifner ",
            "its steps' latency is ",
            "it moves ",
            "Keeping things in sync",
            "10,745,088 gradients, which are 43.0 MB,",
            "  65,536  ",
        ],
    );
    assert!(!text.contains("What it does"), "{text}");
    has(&succeeds("--simulate 8 --network nvlink --collective broadcast"), &["tree", "chain", "8 GPUs"]);
    has(&succeeds("--simulate 100000 --network ethernet --collective scatter"), &["100,000 ranks", "tree"]);
}

#[test]
fn batches_are_fed_in_every_way() {
    for (how, says) in [
        ("each-file", "every rank reads a file of its own"),
        ("shared-file", "every rank reads its slice of one file"),
        ("readers 2", "2 of 4 ranks read one file, and scatter"),
    ] {
        let text = succeeds(&format!("--feed {how} --disk 1ms,1GB/s"));
        has(&text, &[says, "ms until the batch is there", "when read ahead", "own batch in every step"]);
        assert_eq!(text.contains("2 requests x 1.00 ms"), how == "readers 2", "{text}");
    }
    let text = succeeds("--feed each-file --disk none --ranks 2");
    assert!(!text.contains("simulated"), "{text}");
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, what) in [
        ("--ranks 0", "--ranks 0 is out of range"),
        (
            "--algorithm pairwise",
            "all-reduce has no algorithm pairwise\nhelp: it has naive, ring, recursive-doubling, rabenseifner",
        ),
        ("--simulate 1", "--simulate 1 is out of range\nhelp: give 2 to 100,000"),
        ("--simulate 9 --network nvlink", "--simulate 9 is out of range\nhelp: give 2 to 8: nvlink is one node"),
        ("--simulate 100001", "--simulate 100001 is out of range"),
        ("--network token-ring", "invalid value 'token-ring'"),
        ("--up-to 0", "--up-to 0 is not possible"),
        ("--up-to 99999999999", "--up-to 99999999999 is not possible"),
        ("--feed tape", "--feed tape is unknown\nhelp: give each-file, shared-file, or readers"),
        ("--feed readers 5", "--feed readers 5 is not possible\nhelp: give --feed readers and a number from 1 to 4"),
        ("--feed each-file --disk fast", "--disk fast: two values are needed"),
        ("--feed each-file --out /dev/null/x", "cannot write /dev/null/x/feed"),
        ("--bench --json missing/b.json", "missing/b.json: "),
        ("--simulate 8 --json b.json", "--json has nothing to write"),
        ("--ranks 1 --json b.json", "--json has nothing to write"),
    ] {
        failed(&lab01(dir.path(), flags), 2, what);
    }
}
