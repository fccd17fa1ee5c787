//! `--trace` in every lab that has it: a file that a trace viewer draws as it happened.

use crate::suite::program::{program, succeeded};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// A span: begin and end in tenths of a microsecond, which is the grid of the file, and its name.
type Span = (u64, u64, String);

/// The spans of a run with `--trace`, by rank and track.
fn trace(lab: &str, flags: &str) -> BTreeMap<(u64, String), Vec<Span>> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program(lab));
    command.current_dir(dir.path()).env_remove("SHARDLAB_CORPUS");
    let flags = format!("{flags} --trace t.json");
    let text = succeeded(&command.args(flags.split_whitespace()).output().unwrap());
    let row = "t.json: open it at ui.perfetto.dev";
    assert_eq!(text.matches(row).count(), 1, "{lab}: {text}");
    let trace = std::fs::read_to_string(dir.path().join("t.json")).unwrap();
    let trace: Value = serde_json::from_str(&trace).unwrap();
    let mut tracks: BTreeMap<_, Vec<Span>> = BTreeMap::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        if event["ph"] == "M" {
            continue;
        }
        assert_eq!(event["ph"], "X", "{lab}: {event}");
        let tenths = |what: &str| (10.0 * event[what].as_f64().unwrap()).round() as u64;
        let start = tenths("ts");
        let [name, track] = ["name", "cat"].map(|key| event[key].as_str().unwrap().to_string());
        let track = tracks.entry((event["pid"].as_u64().unwrap(), track));
        track.or_default().push((start, start + tenths("dur"), name));
    }
    tracks
}

/// Two spans of a track that are neither nested nor disjoint: a viewer draws the second one level
/// deeper, as if the first had called it.
fn crossing(spans: &[Span]) -> Option<(&Span, &Span)> {
    let mut order: Vec<&Span> = spans.iter().collect();
    // Of two that begin together the longer one is around the other.
    order.sort_by_key(|(start, end, _)| (*start, u64::MAX - end));
    let mut open: Vec<&Span> = Vec::new();
    for span in order {
        while open.last().is_some_and(|outer| outer.1 <= span.0) {
            open.pop();
        }
        match open.last() {
            Some(outer) if outer.1 < span.1 => return Some((outer, span)),
            _ => open.push(span),
        }
    }
    None
}

#[test]
fn crossing_spans_are_found() {
    let span = |start, end| (start, end, String::new());
    assert_eq!(crossing(&[span(0, 5), span(5, 9), span(6, 7)]), None);
    assert_eq!(crossing(&[span(5, 9), span(0, 9), span(5, 6)]), None);
    assert!(crossing(&[span(0, 5), span(4, 9)]).is_some());
    assert!(crossing(&[span(4, 9), span(0, 9), span(3, 5)]).is_some());
}

#[test]
fn spans_of_a_track_are_nested_or_disjoint_in_every_lab() {
    let gpt = "--heads 2 --embd 16 --block 8 --batch 2";
    let stages = "--layers 8 --pace 0 --schedule";
    for (lab, ranks, flags) in [
        ("lab02", 2, "--steps 8".to_string()),
        ("lab03", 2, format!("{gpt} --layers 2 --steps 6 --grad-accum 2 --eval-iters 1")),
        ("lab03", 2, format!("{gpt} --layers 2 --steps 4 --no-overlap --eval-iters 1")),
        (
            "lab04",
            2,
            format!("{gpt} --layers 2 --steps 4 --zero 3 --ranks 2 --eval-iters 1"),
        ),
        (
            "lab05",
            4,
            format!("{gpt} --layers 2 --steps 4 --tp 2 --ranks 4 --zero 1 --eval-iters 1"),
        ),
        ("lab06", 4, format!("{gpt} {stages} interleaved")),
        ("lab06", 4, format!("{gpt} {stages} zero-bubble")),
        ("lab07", 8, format!("{gpt} --layers 2 --steps 3")),
        (
            "lab07",
            4,
            format!("{gpt} --layers 4 --steps 3 --ranks 4 --tp 1 --schedule interleaved"),
        ),
        (
            "lab08",
            2,
            "--layers 1 --embd 16 --block 16 --steps 12 --policy count --poison 6 7".to_string(),
        ),
    ] {
        let tracks = trace(lab, &flags);
        let computing = tracks.keys().filter(|(_, track)| track == "compute");
        assert_eq!(computing.count(), ranks, "{lab} {flags}");
        for ((rank, track), spans) in &tracks {
            let crosses = crossing(spans);
            assert_eq!(crosses, None, "{lab} {flags}: {track} of rank {rank}");
            assert!(spans.iter().all(|(start, end, _)| start <= end));
        }
    }
}

/// How often each name occurs on a track.
fn names(
    tracks: &BTreeMap<(u64, String), Vec<Span>>,
    rank: u64,
    track: &str,
) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for (_, _, name) in &tracks[&(rank, track.to_string())] {
        *names.entry(name.clone()).or_default() += 1;
    }
    names
}

/// Every pass, message and wait of every step is there, by micro-batch and chunk.
#[test]
fn a_pipelines_trace_has_every_pass_and_message() {
    let small = "--layers 8 --heads 2 --embd 16 --block 8 --batch 2 --pace 0 --micro-batches 4 --steps 2 --stages 2";
    let tracks = trace("lab06", &format!("{small} --schedule interleaved"));
    for rank in [0, 1] {
        let compute = names(&tracks, rank, "compute");
        let mut expected = BTreeMap::from([("optimizer".to_string(), 2)]);
        for chunk in [0, 1] {
            for micro in 0..4 {
                for work in ["forward", "backward"] {
                    expected.insert(format!("{work} {micro} of chunk {chunk}"), 2);
                }
            }
        }
        assert_eq!(compute, expected, "rank {rank}");
    }
    let zero_bubble = trace("lab06", &format!("{small} --schedule zero-bubble"));
    let compute = names(&zero_bubble, 0, "compute");
    assert_eq!(compute["backward (weights) 3"], 2);
    let [first, last] = [0, 1].map(|rank| names(&zero_bubble, rank, "messages"));
    assert_eq!(first["send forward 2 to pipeline rank 1"], 2);
    assert_eq!(first["receive backward 2 from pipeline rank 1"], 2);
    assert_eq!(last["receive forward 2 from pipeline rank 0"], 2);
    assert_eq!((first.len(), last.len()), (8, 8));
    // What a rank receives it waits for, and it computes nothing meanwhile.
    for rank in [0, 1] {
        let of = |track: &str| &zero_bubble[&(rank, track.to_string())];
        for (from, to, name) in of("waiting").iter().filter(|wait| wait.2.contains("ward")) {
            let computes = |pass: &&Span| pass.0 < *to && *from < pass.1;
            assert_eq!(of("compute").iter().find(computes), None, "{name}");
        }
    }
}

/// lab07's data ranks average beside the last backward passes; lab08's steps have four
/// micro-batches, and skip two steps.
#[test]
fn the_traces_of_labs_07_and_08_name_what_a_step_has() {
    let small = "--layers 2 --heads 2 --embd 16 --block 8 --batch 2 --steps 2";
    let tracks = trace("lab07", small);
    for rank in 0..8 {
        let compute = names(&tracks, rank, "compute");
        assert_eq!(compute["forward 3"], 2);
        assert_eq!((compute["backward 0"], compute["optimizer"]), (2, 2));
        assert_eq!(compute.len(), 9, "{compute:?}");
        assert!(names(&tracks, rank, "communication")["all-reduce"] >= 2);
    }
    let run = "--layers 1 --embd 16 --block 16 --steps 12 --policy count --poison 6 7";
    let tracks = trace("lab08", run);
    for rank in [0, 1] {
        let compute = names(&tracks, rank, "compute");
        for name in ["data", "forward 3", "backward 2", "optimizer"] {
            assert_eq!(compute[name], 10, "{name}: steps that were skipped have no pass");
        }
    }
}
