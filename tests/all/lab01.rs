//! lab01 as its users start it: files, time, exit codes.

use crate::suite::program::{lab, lab_in, passes, stderr, succeeded};

#[test]
fn what_is_broken_leaves_the_calls_of_all_ranks() {
    for how in ["missing-rank", "wrong-length", "wrong-op", "wrong-order", "early-exit"] {
        let dir = tempfile::tempdir().unwrap();
        lab_in(dir.path(), "lab01", &format!("--break {how} --out o"));
        assert!(dir.path().join("o/flight.jsonl").is_file(), "{how}");
    }
}

#[test]
fn a_slow_rank_is_named_and_not_ended() {
    let output = lab("lab01", "--break slow-rank --deadline 4");
    succeeded(&output);
    let said = stderr(&output);
    assert_eq!(said.matches("notice: rank 3 is a straggler: ").count(), 1, "{said}");
}

#[test]
fn a_benchmark_writes_all_sizes() {
    let dir = tempfile::tempdir().unwrap();
    let flags = "--bench --up-to 1 --ranks 2 --collective all-gather --json b.json";
    succeeded(&lab_in(dir.path(), "lab01", flags));
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
fn other_jobs_pass_the_checks() {
    let all = [
        "--ranks 2 --rounds --algorithm auto",
        "--rounds --algorithm rabenseifner --ranks 5",
        // A digit for each rank: twenty of them are more than 64 bits hold.
        "--rounds --ranks 64",
        "--bench --up-to 1 --algorithm ring",
        "--simulate 100000 --network ethernet --collective scatter",
        "--feed each-file --disk none --ranks 2",
        "--feed shared-file --disk 1ms,1GB/s",
        "--feed readers 2 --disk 1ms,1GB/s",
    ];
    passes("lab01", &all);
    let link = "--ascii --link 10us,1GB/s --up-to 1 --algorithm naive --collective all-reduce";
    assert!(succeeded(&lab("lab01", link)).is_ascii());
}
