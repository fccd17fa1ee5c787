//! lab10 as its users start it: what is on the screen, what is refused, and exit codes.

use crate::suite::llama::stories;
use crate::suite::program::{
    bars_are_to_one_scale, failed, fits, has, is_narrow, program, stderr, succeeded,
};
use shardlab::launch;
use std::process::{Command, Output};

const SMALL: &str = "--seq 16 --batch 4";

fn lab10(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab10"));
    command.current_dir(dir.path()).env("NO_COLOR", "").env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab10 starts")
}

#[test]
fn every_strategy_runs_one_ranks_model() {
    let text = succeeded(&lab10(SMALL));
    fits(&text, 45);
    assert_eq!(text.matches(" ✓\n").count(), 3, "{text}");
    for strategy in ["1 rank", "DP 4", "ZeRO-3 4", "TP 4", "PP 4", "PP 2 x TP 2", "TP 2 x ZeRO-3 2"]
    {
        has(&text, &[&format!("\n  {strategy} ")]);
    }
    has(&text, &["Takeaway"]);
    assert!(!text.contains("Elapsed="), "{text}");
    // Ranks that take turns on a core have no times.
    let turns = format!("No times: 4 ranks take turns on {} cores.", launch::cores());
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text.contains("tokens/s"), launch::cores() >= 4, "{text}");
    assert_eq!(words.contains(&turns), launch::cores() < 4, "{text}");
    let roofline = succeeded(&lab10(&format!("{SMALL} --ascii --roofline")));
    assert!(roofline.is_ascii());
    let words = roofline.split_whitespace().collect::<Vec<_>>().join(" ");
    let slow = "4 ranks take turns on";
    assert_eq!(
        words.contains(&format!("not timed, because {slow}")),
        launch::cores() < 4,
        "{roofline}"
    );
}

/// A strategy that cannot run the job is named, with the reason.
#[test]
fn what_is_left_out_is_said() {
    let dry = |flags: &str| {
        let text = succeeded(&lab10(&format!("{flags} --dry-run")));
        is_narrow(&text);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let empty = "left out DP 4, ZeRO-3 4: rank 2 of 4 data ranks would run an empty batch";
    has(&dry("--batch 2"), &[empty]);
    let eight = dry("--ranks 8");
    has(
        &eight,
        &[
            "left out TP 8: 4 key and value heads (for 8 query heads) cannot be divided evenly among 8 tensor ranks",
        ],
    );
    has(&eight, &["left out PP 8: "]);
    assert!(!dry("").contains("left out") && !dry("--ranks 3").contains("mesh"));
}

#[test]
fn a_strategy_of_your_own() {
    let text = succeeded(&lab10(&format!("{SMALL} --tp 2 --pp 2 --zero 1 --ranks 8")));
    is_narrow(&text);
    has(&text, &["PP 2 x TP 2 x ZeRO-1 2 "]);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &words,
        &[
            "Using topology: {ProcessCoord(pipe=0, data=0, model=0): 0,",
            "(pipe=1, data=1, model=1): 7}",
        ],
    );
    assert_eq!(text.matches(" ✓\n").count(), 3, "{text}");
    // One rank's lines have times, and those of eight ranks on fewer cores do not.
    let timed = if launch::cores() < 8 { 1 } else { 2 };
    assert_eq!(text.matches("Elapsed=").count(), 2 * timed, "{text}");
    has(
        &text,
        &[
            "Batch=4|Seq=16 Elapsed=0.",
            "--- Breakdown ---\n  Tokens: 64, Time: 0.",
            "s, Cost/1M: $",
        ],
    );
    has(
        &text,
        &[
            "  MA ",
            " Max_MA ",
            "CPU Virtual Memory:  used = ",
            "Cleared distributed env and caches.\n",
        ],
    );
    assert_eq!(
        text.contains(&format!("not timed: 8 ranks take turns on {} cores", launch::cores())),
        timed == 1
    );
}

#[test]
fn deepspeeds_settings_are_json_and_what_they_do_not_say_is_beside_them() {
    let output = lab10("--tp 2 --pp 2 --emit-deepspeed --dtype bf16");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(
        (&json["tensor_parallel"]["autotp_size"], &json["pipeline"]["stages"]),
        (&2.into(), &2.into())
    );
    assert_eq!((&json["train_batch_size"], &json["bf16"]["enabled"]), (&8.into(), &true.into()));
    let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("0.16.2, which the source ran, ignores the key"), "{said}");
    assert!(said.contains("num_stages=2, partition_method=\"parameters\""), "{said}");
}

#[test]
fn a_job_that_cannot_run_is_named() {
    for (flags, code, what, help) in [
        (
            "--batch 2 --zero 3",
            2,
            "rank 2 of 4 data ranks would run an empty batch",
            "give a batch of 4 or more",
        ),
        (
            "--batch 6 --zero 0",
            2,
            "a batch of 6 cannot be divided evenly into 4",
            "a multiple of 4",
        ),
        ("--pp 2 --zero 3", 2, "ZeRO-3 and a pipeline do not go together", "ZeRO 0 or 1"),
        (
            "--tp 3 --ranks 3",
            2,
            "4 key and value heads (for 8 query heads) cannot be divided",
            "choose --tp among 1, 2, 4",
        ),
        (
            "--pp 4 --ranks 6",
            2,
            "a mesh of 1 data x 4 pipeline x 1 tensor needs 4 ranks",
            "start a multiple of 4",
        ),
        (
            "--seq 512",
            2,
            "512 tokens per sequence and 16 generated ones",
            "a smaller --seq",
        ),
        ("--model gpt-5", 2, "no model is named gpt-5", "stories260k"),
        (
            "--model some/model",
            2,
            "some/model is neither a folder nor a file",
            "--model hub:some/model",
        ),
        (
            "--model hub:some/model",
            2,
            "this build downloads no models",
            "cargo run --features llm --bin lab10",
        ),
        (
            "--reference",
            2,
            "--reference needs candle-transformers",
            "cargo run --features llm --bin lab10",
        ),
        ("--compare", 2, "a text needs a trained model", "--model FOLDER"),
        (
            "--memory-limit 40",
            2,
            "the following required arguments were not provided: --finale",
            "--help",
        ),
        (
            "--finale --tp 2",
            2,
            "the argument '--finale' cannot be used with '--tp <RANKS>'",
            "--help",
        ),
        ("--prompt Once", 2, "a text needs a trained model", "--model FOLDER"),
    ] {
        if cfg!(feature = "llm") && (flags.contains("hub:") || flags == "--reference") {
            continue;
        }
        let output = lab10(flags);
        failed(&output, code, what);
        has(&stderr(&output), &[help]);
    }
}

/// The source's 16 sequences on 4 ranks: three of each rank's four micro-batches are empty.
#[test]
fn sequences_that_are_walked_as_the_global_batch_leave_every_rank_empty_ones() {
    let source = "--break local-as-global --batch 16 --micro-batches 4";
    let text = failed(&lab10(source), 1, "3 of 4 micro-batches are empty on each rank");
    has(&text, &["every micro-batch has sequences", "4 of 4 ranks have empty ones ✗"]);
    assert_eq!(text.matches("4 0 0 0").count(), 4, "{text}");
    // One rank's own sequences are the global batch.
    has(
        &succeeded(&lab10(&format!("{source} --ranks 1"))),
        &["0 of 1 ranks have empty ones ✓"],
    );
}

/// A layer that reads a parameter which no rank has gathered says which one, and who holds what.
#[test]
fn an_ungathered_parameter_is_named() {
    let output = lab10(&format!("{SMALL} --break ungathered"));
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    has(
        &error,
        &[
            "failed: parameter model.embed_tokens.weight [512, 64] is sharded among 4 ranks, and not gathered",
        ],
    );
    has(
        &error,
        &[
            "\n  rank 3  holds 8192 elements: 24576 to 32767\n",
            "help: use it within a step",
        ],
    );
}

/// Eight ranks with 25 MB each train a model that takes four times as much.
#[test]
fn only_strategies_combined_fit() {
    let text = succeeded(&lab10("--finale"));
    is_narrow(&text);
    for (name, stopped) in [
        ("DP 8", "stopped in its state"),
        ("ZeRO-3 8", "stopped in a training step"),
        ("TP 2", "stopped in its state"),
        ("PP 4", "stopped in its state"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("  {name}  "))).expect(name);
        assert!(line.ends_with(stopped), "{line}");
    }
    bars_are_to_one_scale(&text);
    has(
        &text,
        &["no strategy alone fits", "a combination fits", "TP 2 x ZeRO-3 4, PP 4 x TP 2 ✓"],
    );
}

#[test]
#[ignore = "every strategy trains and generates: the gate runs it"]
fn one_strategy_is_enough_where_memory_is() {
    let output = lab10("--finale --memory-limit 400");
    failed(&output, 1, "one strategy is enough: lower --memory-limit");
}

/// The pretrained model's text, in one piece and divided; and what it expects next.
#[test]
#[ignore = "needs SHARDLAB_EXTRAS: a folder with models/stories260K"]
fn one_text_under_every_strategy() {
    let dir = stories();
    let lab10 = |flags: &str| succeeded(&lab10(&format!("--model {} {flags}", dir.display())));
    let text = lab10("--compare");
    is_narrow(&text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &words,
        &[
            "Once upon a time, there was a little girl named Lily. She loved to play outside in the park.",
        ],
    );
    has(&words, &["One day, she saw a big, red ball."]);
    for strategy in [
        "TP 2",
        "PP 2",
        "ZeRO-3 2",
        "TP 4",
        "PP 4",
        "ZeRO-3 4",
        "PP 2 x TP 2",
        "TP 2 x ZeRO-3 2",
    ] {
        let line = text
            .lines()
            .find(|line| line.contains(&format!(" {strategy}: the same 200 tokens")))
            .expect(strategy);
        let ranks = if strategy.ends_with(" 2") && !strategy.contains(" x ") {
            2
        } else {
            4
        };
        assert!(
            line.ends_with(" ✓") && line.contains("tokens/s") == (ranks <= launch::cores()),
            "{line}"
        );
    }
    let text = lab10("--prompt Tim --show-next --tokens 3 --tp 2");
    assert_eq!(text.lines().filter(|line| line.contains('%')).count(), 15, "{text}");
    is_narrow(&text);
    assert_eq!(
        lab10("--compare --ranks 2 --tokens 9").matches(": the same 9 tokens").count(),
        3
    );
}
