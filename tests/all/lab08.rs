//! lab08 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{failed, fits, has, is_narrow, program, stderr, stdout, succeeded};
use std::path::Path;
use std::process::{Command, Output};

/// A tiny model whose steps 16 and 17 are bad.
const SMALL: &str = "--layers 1 --embd 16 --block 16 --lr 0.01";
const BAD: &str = "--steps 30 --poison 16 17";

fn lab08_in(folder: &Path, flags: &str) -> Output {
    let mut command = Command::new(program("lab08"));
    command
        .current_dir(folder)
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab08 starts")
}

fn lab08(flags: &str) -> Output {
    lab08_in(tempfile::tempdir().unwrap().path(), flags)
}

fn small(flags: &str) -> Output {
    let save = if flags.contains("--save-every") {
        ""
    } else {
        "--save-every 8"
    };
    lab08(&format!("{SMALL} {BAD} {save} {flags}"))
}

/// The cells of the table's row that begins with `name`.
#[track_caller]
fn row(text: &str, name: &str) -> Vec<String> {
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("  {name}")))
        .unwrap_or_else(|| panic!("{name}\n{text}"));
    line[2 + name.len()..].split_whitespace().map(String::from).collect()
}

#[test]
fn a_spike_is_found_and_survived() {
    let text = succeeded(&lab08(""));
    fits(&text, 45);
    assert_eq!(text.matches(" ✓\n").count(), 8, "{text}");
    has(&text, &["--train-range-to-skip 61 64\n", "resume   from step 50 ", "Takeaway"]);
    // The weights learn from all bad micro-batches, none, those that one per step leaves, or none.
    let cells =
        ["skips nothing", "count", "one-batch", "auto", "clean text"].map(|name| row(&text, name));
    let column = |i: usize| cells.each_ref().map(|cells| cells[i].clone());
    assert_eq!(column(0), ["120", "116", "120", "116", "120"], "{text}");
    assert_eq!(column(1), ["16", "0", "12", "0", "0"], "{text}");
    // 16 micro-batches are bad; one-batch has discarded 4 and moves on by 4.
    assert_eq!(column(3), ["257", "257", "261", "257", "257"], "{text}");
    let [damaged, count, one_batch, auto, clean] =
        column(6).map(|loss| loss.parse::<f64>().unwrap());
    assert!(
        damaged > one_batch && one_batch > count && count == auto && count > clean,
        "{text}"
    );
    let highest = column(2).map(|loss| loss.parse::<f64>().unwrap());
    assert!(
        highest[0] > 4.5 && highest[1] < 3.2 && highest[2] > 4.5 && highest[3] < 3.2,
        "{text}"
    );
}

#[test]
fn the_screen_is_ascii_if_asked_and_any_job_survives() {
    let text = succeeded(&small("--ascii"));
    assert!(text.is_ascii(), "{text}");
    for flags in [
        "--ranks 1 --grad-accum 1 --batch 16",
        "--ranks 3 --zero 3 --sampler seeds",
        "--zero 0 --dropout 0.1",
    ] {
        let text = succeeded(&small(flags));
        has(&text, &["--train-range-to-skip 16 17\n", "resume   from step 8 "]);
        assert_eq!(text.matches(" ✓\n").count(), 8, "{flags}\n{text}");
    }
    // There is no checkpoint before the spike.
    has(&succeeded(&small("--save-every 20")), &["resume   from step 0 "]);
}

#[test]
fn a_run_without_bad_batches_has_no_spike() {
    let text = succeeded(&lab08(&format!("{SMALL} --steps 30 --no-poison")));
    has(&text, &["30 x 4 micro-batches; no text is random\n", "no spike was found"]);
    assert!(!text.contains("--train-range-to-skip"), "{text}");
    assert_eq!(text.matches(" ✓\n").count(), 4, "{text}");
}

/// Steps that are skipped have neither loss nor norm in the log and in the file, and the other
/// lines have their fields.
#[test]
fn skipped_steps_are_logged_and_stay_out_of_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let flags = format!("{SMALL} --steps 6 --train-range-to-skip 2 3 5 5 --log --metrics m.jsonl");
    let text = succeeded(&lab08_in(folder.path(), &flags));
    is_narrow(&text);
    has(
        &text,
        &[
            "Caught 2 in 'ranges_to_skip', skipping!\n",
            "all ranks skipped the same steps",
            "3 of 6 ✓",
        ],
    );
    assert_eq!(text.matches("Caught ").count(), 3, "{text}");
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
        let text = stdout(&lab08(&format!("{SMALL} --steps 4 --print-tokens {flags}")));
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
    succeeded(&lab08_in(folder.path(), &format!("{SMALL} {BAD}")));
    let text = succeeded(&lab08_in(folder.path(), "--find-spikes"));
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
        &succeeded(&lab08_in(folder.path(), "--find-spikes lab03.jsonl")),
        &["--train-range-to-skip 21 21\n"],
    );
    std::fs::write(folder.path().join("lab03.jsonl"), of(99)).unwrap();
    let text = succeeded(&lab08_in(folder.path(), "--find-spikes lab03.jsonl"));
    has(&text, &["none in lab03.jsonl: 39 losses, and none is above its limit"]);
    let output = lab08_in(folder.path(), "--find-spikes none.jsonl");
    failed(&output, 2, "cannot read none.jsonl");
    has(&stderr(&output), &["help: name the file that --metrics wrote"]);
}

#[test]
fn each_policy_shows_what_it_does() {
    let text = succeeded(&small("--policy count"));
    has(
        &text,
        &[
            "Caught 16 in 'ranges_to_skip', skipping!\nCaught 17 in",
            "0 of 8 per rank ✓",
            "skipped_steps=2 ✓",
        ],
    );
    let text = succeeded(&small("--policy auto"));
    has(
        &text,
        &[
            "step 16: the loss of a rank is above its limit",
            "2 of 30 ✓",
            "0 of 8 per rank ✓",
            "120 per rank ✓",
        ],
    );
    let output = small("--policy one-batch");
    failed(
        &output,
        1,
        "the weights learned from bad batches; step 16 drew micro-batches of a different step",
    );
    let text = stdout(&output);
    has(&text, &["6 of 8 per rank ✗", "not from step 16 on ✗", "skipped_steps=0 ✗"]);
    // Without accumulation the bad batches stay out, but later steps still move.
    let output = small("--policy one-batch --grad-accum 1");
    let text = stdout(&output);
    has(&text, &["0 of 2 per rank ✓", "not from step 16 on ✗"]);
}

/// The ranks average gradients of different steps, and nothing fails until one of them has no step
/// left.
#[test]
fn one_rank_that_skips_alone_is_named_at_the_end() {
    let output = small("--break one-rank");
    let text = stdout(&output);
    has(
        &text,
        &["  symptom  the ranks averaged gradients of steps 16 and 18, and no call failed\n"],
    );
    failed(&output, 1, "deadlock: all ranks wait for each other");
    has(
        &stderr(&output),
        &[
            "\n  rank 0  waits in start_reduce in group data",
            "\n  rank 1  waits in all_reduce (sum, 40 f64, src/train/evaluate.rs",
        ],
    );
}

#[test]
fn flags_that_say_nothing_clear_are_refused() {
    for (flags, message, help) in [
        (
            "--train-range-to-skip 10 20 25",
            "--train-range-to-skip has an odd count of numbers",
            "10 20 25 30",
        ),
        (
            "--train-range-to-skip 20 10",
            "--train-range-to-skip 20 10: this range ends before it begins",
            "--train-range-to-skip 10 20",
        ),
        (
            "--train-range-to-skip 10 20 15 25",
            "--train-range-to-skip 10 20 15 25: these ranges overlap",
            "--train-range-to-skip 10 25",
        ),
        (
            "--train-range-to-skip -3 4",
            "--train-range-to-skip -3 4: there is no step -3",
            "count steps from 1",
        ),
        (
            "--train-range-to-skip 31 40",
            "--train-range-to-skip 31 40 begins after the last step, 30",
            "--steps",
        ),
        (
            "--train-range-to-skip 2 3 --policy auto",
            "--policy auto finds the steps to skip",
            "one of the two",
        ),
        ("--break one-rank --ranks 1", "a single rank is all ranks", "--ranks 2"),
        (
            "--break one-rank --policy auto",
            "the argument '--break <BROKEN>' cannot be used with '--policy",
            "--help",
        ),
        ("--save-every 0", "invalid value '0' for '--save-every <", "1 or more"),
        (
            "--init-from x",
            "invalid value 'x' for '--init-from <DIR>': this lab",
            "leave it out",
        ),
    ] {
        let output = small(flags);
        failed(&output, 2, message);
        has(&stderr(&output), &[help]);
    }
    for (flags, message) in [
        ("--poison 64 61", "--poison 64 61 is no range of steps"),
        ("--poison 0 3", "--poison 0 3 is no range of steps"),
        ("--no-poison --policy count", "there is no range to skip"),
    ] {
        failed(&lab08(flags), 2, message);
    }
}
