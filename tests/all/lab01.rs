//! lab01 as its users start it: what is on the screen, files, exit codes.

use crate::suite::program::{self, failed, has, is_narrow, program, succeeded};
use std::path::Path;
use std::process::{Command, Output};

const COLLECTIVES: [&str; 8] = [
    "all-reduce",
    "reduce",
    "broadcast",
    "all-gather",
    "reduce-scatter",
    "scatter",
    "gather",
    "all-to-all",
];

fn lab01(dir: &Path, flags: &str) -> Output {
    let mut command = Command::new(program("lab01"));
    command
        .current_dir(dir)
        .env("NO_COLOR", "")
        .args(flags.split_whitespace())
        .output()
        .expect("lab01 starts")
}

#[track_caller]
fn succeeds(flags: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab01(dir.path(), flags));
    is_narrow(&text);
    assert_eq!(text.matches("Takeaway").count(), 1, "{text}");
    text
}

#[test]
fn a_run_shows_one_collective_its_first_round_its_cost_and_what_is_fastest() {
    let text = succeeds("");
    has(
        &text,
        &[
            "What does a collective do",
            "all-reduce: every rank gets the sum of all ranks' numbers\n  rank 0 │    1     2     3     4      rank 0 │ 1111  2222  3333  4444\n",
            "  rank 2 │  100   200   300   400      rank 2 │ 1111  2222  3333  4444\n",
            "How: all-reduce by ring, 4 ranks.",
            "  round 1 of 6: ",
            "  rank 1 │[  10]   20    30    40   →  rank 1 │   10    20    30 [  44]\n",
            "  Round 3 completes each sum on one rank, round 6 on every rank: --rounds.\n",
            "  ring                     6         6  20.2 kB  2(n-1) rounds of S/n ✓\n",
            "  recursive-doubling       2         2  26.9 kB  log2 n rounds of S ✓\n",
            "Predicted for 4 ranks on ethernet\n",
            "; per message 24.0 µs + S / 1.25 GB/s\n",
            // 2 rounds of 24 µs and 0.82 µs; 6 rounds of 24 µs and 1/4 of 53.7 ms.
            "  1.00 KiB  149 µs   145 µs   49.6 µs     97.2 µs       recursive-doubling\n",
            "  64.0 MiB  322 ms   80.7 ms  107 ms      80.6 ms       rabenseifner, ring\n",
            "every algorithm gives its collective's result ……………………………… 19 of 19 ✓",
            "rounds, messages and bytes match the formulas ……………………………… 19 of 19 ✓",
            "\n  More: --rounds, --bench, --simulate 768, --collective all, ",
        ],
    );
    assert!(
        !text.contains("round 2 of 6") && !text.contains('\x1b') && !text.contains("step "),
        "{text}"
    );
    assert!(succeeds("--ascii --ranks 3").is_ascii());
}

#[test]
fn all_collectives_are_shown_on_request() {
    let text = succeeds("--collective all");
    for collective in COLLECTIVES {
        assert_eq!(text.matches(&format!("\n  {collective}: ")).count(), 1, "{text}");
    }
    has(
        &text,
        &[
            "A blank: this rank holds nothing there.",
            "  rank 2 │  100   200   300   400      rank 2 │  100   200   300   400\n",
            "  rank 1 │              →  rank 1 │ 1  2  3  4\n",
            "  rank 3 │                   4000      rank 3 │    1    20   300  4000\n",
            "  rank 3 │                 rank 3 │          4\n",
            "  all-reduce, max: every rank gets the largest number of each column\n",
            "  rank 0 │ 3  6  9  2      rank 0 │ 7  7  9  9\n",
            "  all-reduce, min: every rank gets the smallest number of each column\n",
            "  rank 0 │ 3  6  9  2      rank 0 │ 0  0  0  2\n",
        ],
    );
    assert!(!text.contains("round 1") && !text.contains("What it costs"));
    has(
        &succeeds("--collective broadcast"),
        &["broadcast by tree, 4 ranks", "  flat", "  chain", "Predicted for 4 ranks"],
    );
}

#[test]
fn any_number_of_ranks_is_shown() {
    let alone = succeeds("--ranks 1");
    has(
        &alone,
        &[
            "one rank has no other rank to talk to",
            "rank 0 │ 1   →  rank 0 │ 1\n",
            "19 of 19 ✓",
        ],
    );
    assert!(!alone.contains("What it costs"), "{alone}");
    has(
        &succeeds("--ranks 2"),
        &["  round 1 of 2: ", "rank 0 │  1 [ 2]  →  rank 0 │[11]  2\n"],
    );
    has(
        &succeeds("--ranks 7"),
        &[
            "by ring, the first 5 of 7 ranks",
            "  Round 4 completes each sum on one rank, round 8 on every rank: --rounds.\n",
            "log2 p + 2 rounds of S ✓",
        ],
    );
}

#[test]
fn what_is_broken_ends_in_an_error_that_names_every_rank() {
    for (how, says, ranks) in [
        (
            "missing-rank",
            "the ranks are in different calls: ",
            "\n  rank 3  waits in barrier (labs/lab01/apparatus/breaking.rs:",
        ),
        (
            "wrong-length",
            "the ranks are in different calls: ",
            "\n  rank 3  waits in all_reduce (sum, 3 f32, ",
        ),
        (
            "wrong-op",
            "the ranks are in different calls: ",
            "\n  rank 3  waits in all_reduce (max, 4 f32, ",
        ),
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
        assert!(
            error.ends_with("the last 64 calls of every rank are in o/flight.jsonl\n"),
            "{error}"
        );
        assert!(dir.path().join("o/flight.jsonl").is_file());
    }
}

#[test]
fn a_slow_rank_is_named_and_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab01(dir.path(), "--break slow-rank --deadline 4");
    has(
        &succeeded(&output),
        &[
            "Rank 3 waited least: the others waited ",
            "the slow rank is the one that all waited for",
        ],
    );
    let said = program::stderr(&output);
    assert_eq!(said.matches("notice: rank 3 is a straggler: ").count(), 1, "{said}");
    failed(&lab01(dir.path(), "--break slow-rank --deadline 0"), 2, "invalid value");
    failed(
        &lab01(dir.path(), "--break slow-rank --ranks 1"),
        2,
        "--break needs ranks that can differ",
    );
}

#[test]
fn every_round_of_any_algorithm_is_shown() {
    let ring = succeeds("--rounds");
    assert_eq!(
        (ring.matches("\n  round ").count(), ring.matches(" of 6").count()),
        (6, 6),
        "{ring}"
    );
    has(&ring, &["rank 0 sent 6 messages, 48 bytes; its array has 32\n"]);
    assert!(!ring.contains("What it") && !ring.contains("fastest"), "{ring}");
    assert_eq!(succeeds("--step-by-step"), ring, "the flag's former name");
    let folded = succeeds("--rounds --algorithm rabenseifner --ranks 5");
    has(
        &folded,
        &[
            "round 6 of 6",
            "  rank 1 │    10    20    30    40    50      │[11111 22222 33333 44444 55555]\n",
        ],
    );
    let tree = succeeds("--rounds --collective broadcast");
    has(
        &tree,
        &[
            "broadcast by tree",
            "round 2 of 2",
            "rank 1 │[1  2  3  4]  →  rank 1 │ 1  2  3  4\n",
        ],
    );
    has(
        &succeeds("--rounds --algorithm auto"),
        &["all-reduce by recursive-doubling", "20 of 20"],
    );
    let pairs = succeeds("--rounds --collective all-to-all");
    has(&pairs, &["the first 3 of 4 ranks", "│ 100[200]300      30 300"]);
}

#[test]
fn a_benchmark_prints_all_sizes_and_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab01(
        dir.path(),
        "--bench --up-to 1 --ranks 2 --collective all-gather --json b.json",
    ));
    has(
        &text,
        &[
            "  1.00 KiB  ",
            "  64.0 KiB  ",
            "  1.00 MiB  ",
            "busbw",
            "shared",
            "knee",
            "fastest,",
        ],
    );
    assert!(!text.contains("What it does") && !text.contains("redicted"), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("b.json")).unwrap()).unwrap();
    assert_eq!((&json["ranks"], &json["network"]), (&2.into(), &"threads".into()));
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
                seconds > 0.0
                    && (algbw * seconds / bytes - 1.0).abs() < 1e-9
                    && (busbw / algbw - 0.5).abs() < 1e-9,
                "{point}"
            );
        }
    }
    assert_eq!((&ways[1]["algorithm"], &ways[1]["rounds"]), (&"ring".into(), &1.into()));
}

#[test]
fn timed_ranks_have_a_core_each_where_the_machine_has_two() {
    let ranks = shardlab::launch::cores().clamp(2, 4);
    has(
        &succeeds("--bench --up-to 1 --algorithm ring"),
        &[&format!("all-reduce on {ranks} ranks")],
    );
}

#[test]
fn times_over_a_simulated_link_are_told_and_never_an_error() {
    // More ranks than this machine has cores for: nothing is compared.
    let ranks = shardlab::launch::cores() + 1;
    let crowded = succeeds(&format!(
        "--up-to 1 --link 3ms,100MB/s --ranks {ranks} --algorithm naive --collective all-reduce"
    ));
    has(
        &crowded,
        &[
            "simulated, one for each rank: 100 MB/s, 3.00 ms",
            "How long it takes here",
            "Rounds are not latencies",
        ],
    );
    let words = crowded.split_whitespace().collect::<Vec<_>>().join(" ");
    has(&words, &[&format!("not compared here: {ranks} ranks take turns on ")]);
    assert_eq!(crowded.matches('✓').count(), 3, "{crowded}");
    // The link is shown, and another view is not timed.
    assert!(!succeeds("--link 3ms,100MB/s --rounds").contains("How long"));
}

#[test]
fn a_picture_of_a_few_ranks_has_room_for_many() {
    // A digit for each rank: twenty of them are more than 64 bits hold.
    for ranks in [19, 20, 33, 64] {
        let text = succeeds(&format!("--rounds --ranks {ranks}"));
        has(&text, &[&format!("the first 5 of {ranks} ranks"), "  rank 4 │"]);
    }
}

#[test]
fn other_networks_are_predicted() {
    let text = succeeds("--simulate 1024 --network polaris");
    has(
        &text,
        &[
            "1,024 ranks on polaris",
            "4 GPUs per node",
            "3.40 µs + S / 100 GB/s on a node,",
            "  1.00 KiB  ",
            "  64.0 MiB  ",
            "Weak and strong scaling: a training step on polaris, ",
            "85,790,208 gradients (343 MB)",
            "\n       4  5.16 ms          1.0      98.2%       1.0      98.2%  ████████████\n",
            "\n  65,536  19.3 ms       15,619      93.6%      14.9       0.1%  █░░░░░░░░░░░\n",
        ],
    );
    assert!(!text.contains("What it does"), "{text}");
    has(
        &succeeds("--simulate 8 --network nvlink --collective broadcast"),
        &["tree", "chain", "8 GPUs"],
    );
    has(
        &succeeds("--simulate 100000 --network ethernet --collective scatter"),
        &["100,000 ranks", "tree"],
    );
    let dir = tempfile::tempdir().unwrap();
    succeeded(&lab01(dir.path(), "--simulate 768 --network polaris --json p.json"));
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("p.json")).unwrap()).unwrap();
    assert_eq!((&json["ranks"], &json["network"]), (&768.into(), &"polaris".into()));
    assert_eq!(json["ways"][1]["points"].as_array().unwrap().len(), 9);
}

#[test]
fn batches_are_fed_in_every_way() {
    for (how, says) in [
        ("each-file", "every rank reads its own file"),
        ("shared-file", "every rank reads its slice of one file"),
        ("readers 2", "2 of 4 ranks read one file and scatter it"),
    ] {
        let text = succeeds(&format!("--feed {how} --disk 1ms,1GB/s"));
        has(
            &text,
            &[says, "when read as wanted", "when read ahead", "own batch in every step"],
        );
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
        (
            "--ranks 9 --network nvlink",
            "--ranks 9 is out of range\nhelp: give 1 to 8: nvlink is one node",
        ),
        ("--collective some", "invalid value 'some'"),
        (
            "--simulate 9 --network nvlink",
            "--simulate 9 is out of range\nhelp: give 2 to 8: nvlink is one node",
        ),
        ("--simulate 100001", "--simulate 100001 is out of range"),
        ("--network token-ring", "invalid value 'token-ring'"),
        ("--up-to 0", "--up-to 0 is not possible"),
        ("--up-to 99999999999", "--up-to 99999999999 is not possible"),
        (
            "--feed tape",
            "--feed tape is unknown\nhelp: give each-file, shared-file, or readers",
        ),
        (
            "--feed readers 5",
            "--feed readers 5 is not possible\nhelp: give --feed readers and a number from 1 to 4",
        ),
        ("--feed each-file --disk fast", "--disk fast: two values are needed"),
        ("--feed each-file --out /dev/null/x", "cannot write /dev/null/x/feed"),
        ("--bench --json missing/b.json", "missing/b.json: "),
        ("--rounds --json b.json", "--json has nothing to write"),
        (
            "--feed each-file --disk 3600s,1B/s",
            "--feed would read for 590 d 13 h from --disk 3600s,1B/s\nhelp: ",
        ),
        ("--link 10s,1MB/s", "timing over --link 1.00 MB/s, 10.0 s would take about "),
        ("--ranks 1 --json b.json", "--json has nothing to write"),
    ] {
        failed(&lab01(dir.path(), flags), 2, what);
    }
}
