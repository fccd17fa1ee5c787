//! lab04 as its users start it: every stage, memory, exit codes.

use crate::suite::program::{failed, lab, passes, program, succeeded};
use std::path::Path;
use std::process::{Command, Output};

/// A model of 27,328 parameters.
const SMALL: &str = "--layers 2 --heads 2 --embd 32 --block 16 --batch 2 --warmup 2";

fn lab04(flags: &str) -> Output {
    lab("lab04", &format!("{SMALL} {flags}"))
}

/// The line of a table that begins with this, without the beginning.
#[track_caller]
fn line<'a>(text: &'a str, beginning: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning));
    line.unwrap_or_else(|| panic!("{beginning:?} is missing in\n{text}")).trim()
}

/// Its checks: all stages train the same, and hold and send what the formulas say.
#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 2 --steps 3",
        "--ranks 3 --dtype bf16 --steps 3",
        "--ranks 1 --steps 2",
        "--ranks 7 --steps 6 --zero 3",
        // Without --offload stage 3 takes 109 kB on 4 ranks. With it only gradients are in memory.
        "--offload . --memory-limit 0.03 --steps 2",
        "--offload cpu --memory-limit 0.03 --steps 2",
        "--optimizer muon --ranks 3 --dtype bf16 --grad-accum 2 --steps 3",
        "--optimizer muon --muon-steps deepseek-v4 --muon-qkv whole --offload . --steps 2",
        "--optimizer muon --muon-scale original --zero 3 --ranks 5 --steps 4 --lr 0.02",
    ] {
        passes("lab04", &[&format!("{SMALL} {flags}")]);
    }
}

/// The comparison lets one reduction be in flight at a time, so the peak does not depend on timing.
#[test]
fn temporary_memory_does_not_depend_on_timing() {
    let peak = |flags: &str| {
        let text =
            succeeded(&lab04(&format!("--steps 3 --reduce-bucket 500 --link 1ms,1GB/s {flags}")));
        line(&text, "  peak temp").to_string()
    };
    let first = peak("");
    assert!(first == peak("--no-overlap") && first == peak(""), "{first}");
}

/// The program beside the page on memory, for another model than the page's.
#[test]
fn a_ranks_memory_is_what_the_formulas_say() {
    let mut command = Command::new(program("memory"));
    let flags = "--layers 2 --embd 32 --block 128 --batch 5 --dropout 0.1 --ascii";
    command.env_remove("SHARDLAB_CORPUS").args(flags.split_whitespace());
    let text = succeeded(&command.output().unwrap());
    assert!(text.is_ascii(), "{text}");
    let table = text.lines().skip_while(|line| !line.contains("measured"));
    let rows: Vec<&str> = table.skip(2).take_while(|line| !line.is_empty()).collect();
    // No formula says what a product copies for itself.
    let [rows @ .., copies] = &rows[..] else {
        panic!("{text}")
    };
    assert!(copies.contains("  ?  ") && rows.len() == 4, "{text}");
    for row in rows {
        let cells: Vec<&str> = row.split("  ").filter(|cell| !cell.trim().is_empty()).collect();
        let [.., expected, measured] = cells[..] else {
            panic!("{row}");
        };
        let [expected, measured] = [expected, measured].map(|cell| {
            let (number, unit) = cell.trim().split_once(' ').unwrap();
            (number.parse::<f64>().unwrap(), unit)
        });
        assert_eq!(expected.1, measured.1, "{row}");
        // the tape's own bytes are in no formula.
        assert!((measured.0 - expected.0).abs() <= 0.02 * expected.0, "{row}");
    }
}

/// The peak of temporary bytes in the last column, which is stage 3.
fn peak(text: &str) -> f64 {
    let words: Vec<&str> = line(text, "  peak temp").split_whitespace().rev().take(2).collect();
    words[1].parse::<f64>().unwrap() * if words[0] == "MB" { 1e6 } else { 1e3 }
}

#[test]
fn tiles_bound_what_is_gathered_at_once() {
    let one_at_a_time = "--steps 3 --wrap parameters --prefetch-bucket 0";
    let whole = succeeded(&lab04(one_at_a_time));
    let tiled = succeeded(&lab04(&format!("{one_at_a_time} --tiles 4")));
    // The largest unit is now a block's qkv, three quarters of the size that fc had.
    let ratio = peak(&tiled) / peak(&whole);
    assert!(ratio < 0.85, "{ratio}\n{whole}\n{tiled}");
}

/// Micro-steps let stages 2 and 3 differ from 0 and 1 in the last bits, and no stage from its
/// neighbour.
#[test]
fn a_wrong_stage_is_found_beside_its_neighbour() {
    let neighbours = "--break local-norm --steps 3 --grad-accum 2";
    let says = "stage 1 trained something else; stage 3 trained something else; ranks";
    failed(&lab04(neighbours), 1, says);
}

/// Groups that shard: in every stage and type, with micro-batches, and two links.
#[test]
fn groups_that_shard_pass_the_checks() {
    for flags in [
        "--strategy dp=4,zero=3,shard=2 --steps 3",
        "--strategy dp=4,zero=3,shard=1 --steps 2 --tiles 2 --wrap parameters",
        "--strategy dp=6,zero=1,shard=3,m=2 --steps 2 --dtype bf16",
        "--strategy dp=4,zero=2,shard=2 --steps 3 --grad-accum 3 --reduce-dtype bf16",
        "--strategy dp=4,zero=3,shard=2,offload=parameters --steps 2",
    ] {
        let text = succeeded(&lab04(flags));
        assert!(text.contains("formulas") && text.contains("2 of 2"), "{text}");
    }
    let two_links = "--link 1us,10GB/s --link-between 2ms,1MB/s";
    let text = succeeded(&lab04(&format!("--strategy dp=4,zero=3,shard=2 --steps 3 {two_links}")));
    let times = line(&text, "  step  ");
    let words: Vec<&str> = times.split_whitespace().collect();
    let seconds = |number: &str, unit: &str| {
        number.parse::<f64>().unwrap() * if unit == "ms" { 1e-3 } else { 1.0 }
    };
    // One group sends at least 2 of 109 kB over the slow link, two groups a half.
    let [one, two] = [seconds(words[0], words[1]), seconds(words[2], words[3])];
    assert!(one > 0.2 && one > two, "{text}");
}

/// What goes between groups goes wrong there: the checks notice, and without the mistake they pass.
#[test]
fn mistakes_between_groups_are_noticed() {
    let groups = "--strategy dp=4,zero=3,shard=2 --steps 3 --grad-accum 2";
    for (mistake, says) in [
        ("norm-over-all", "groups trained something else; ranks clipped by another norm"),
        (
            "accumulate-late",
            "groups trained something else; ranks clipped by another norm; the ranks hold different models",
        ),
    ] {
        failed(&lab04(&format!("{groups} --break {mistake}")), 1, says);
    }
    succeeded(&lab04(groups));
}

/// Flags of a full run that takes a second.
const TINY: &str = "--layers 1 --heads 2 --embd 16 --block 16 --batch 2 --eval-interval 4 --eval-iters 2 --log-interval 2 \
                    --warmup 2 --steps 6 --ranks 3 --clip 0.1 --out o";

fn tiny(dir: &Path, lab: &str, flags: &str) -> Output {
    let mut command = Command::new(lab);
    command.current_dir(dir).env("NO_COLOR", "").env_remove("SHARDLAB_CORPUS");
    command
        .args(TINY.split_whitespace())
        .args(flags.split_whitespace())
        .output()
        .expect("the lab starts")
}

/// One stage alone trains in full. Whatever is divided, the losses are those of lab03's DDP to the
/// bit; in bf16, all stages' are one another's.
#[test]
fn every_stage_alone_trains_what_lab03_trains() {
    let dir = tempfile::tempdir().unwrap();
    let evaluations = |lab: &str, flags: &str| {
        let text = succeeded(&tiny(dir.path(), lab, flags));
        // The last one has the hash of all parameters.
        let lines = text
            .lines()
            .filter(|line| line.contains("val_loss=") || line.contains("hold the same"));
        let lines = lines.map(String::from).collect::<Vec<_>>();
        assert_eq!(lines.len(), 4, "{text}");
        lines
    };
    let ddp = evaluations(program("lab03"), "");
    assert_eq!(evaluations(program("lab04"), "--zero 0 --dtype f32"), ddp);
    for stage in 1..=3 {
        assert_eq!(evaluations(program("lab04"), &format!("--zero {stage}")), ddp, "stage {stage}");
    }
    let bf16 = evaluations(program("lab04"), "--zero 0 --dtype bf16");
    assert_ne!(bf16, ddp);
    for stage in [
        "1 --reduce-bucket 500",
        "2",
        "3 --persistence-threshold 0 --prefetch-bucket 0 --wrap parameters --offload .",
    ] {
        assert_eq!(
            evaluations(program("lab04"), &format!("--dtype bf16 --zero {stage}")),
            bf16,
            "stage {stage}"
        );
    }
}

#[test]
fn one_stage_alone_leaves_weights_metrics_and_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let losses = |text: &str, step: &str| {
        let line = text.lines().find(|l| l.starts_with(&format!("{step} train_loss"))).unwrap();
        line.split("   saved").next().unwrap().split_once(' ').unwrap().1.to_string()
    };
    let trained = succeeded(&tiny(
        dir.path(),
        program("lab04"),
        "--zero 3 --metrics m.jsonl --trace t.json --log-all-ranks",
    ));
    let metrics = std::fs::read_to_string(dir.path().join("m.jsonl")).unwrap();
    assert_eq!(metrics.lines().count(), 6);
    let trace: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.path().join("t.json")).unwrap()).unwrap();
    let gathers = trace["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["name"] == "gather");
    // A block, the tables and the small parameters: the block and the token table twice, on 3 ranks
    // in 6 steps.
    assert_eq!(gathers.count(), 3 * 6 * 5);
    // DDP starts from them, and so does another stage.
    let in_lab03 = succeeded(&tiny(dir.path(), program("lab03"), "--init-from o --eval-only"));
    assert_eq!(losses(&in_lab03, "step=0"), losses(&trained, "step=6"));
    let again = succeeded(&tiny(dir.path(), program("lab04"), "--zero 1 --init-from o"));
    assert_eq!(losses(&again, "step=0"), losses(&trained, "step=6"));
}
