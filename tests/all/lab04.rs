//! lab04 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{failed, stderr, succeeded};
use std::process::{Command, Output};

/// A model of 27,328 parameters.
const SMALL: &str = "--layers 2 --heads 2 --embd 32 --block 16 --batch 2 --warmup 2";

fn lab04(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab04"));
    command.current_dir(dir.path()).env("NO_COLOR", "").env_remove("SHARDLAB_CORPUS").env("RUST_BACKTRACE", "0");
    command.args(SMALL.split(' ')).args(flags.split_whitespace()).output().expect("lab04 starts")
}

#[track_caller]
fn has(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "{expected:?} is missing in\n{text}");
    }
}

#[test]
fn all_stages_train_the_same_and_hold_what_the_formulas_say() {
    for (ranks, precision, sent) in [(2, "f32", "1.00 Ψ"), (4, "f32", "1.50 Ψ"), (3, "bf16", "1.33 Ψ")] {
        let text = succeeded(&lab04(&format!("--ranks {ranks} --dtype {precision} --steps 3")));
        for line in text.lines().filter(|line| !line.starts_with("curl")) {
            assert!(line.chars().count() <= 80, "wider than 80: {line}");
        }
        for stage in 1..4 {
            has(&text, &[&format!("stage {stage} trains what stage 0 trains ")]);
        }
        assert_eq!(text.matches("bitwise equal ✓").count(), 3, "{text}");
        has(&text, &["as the formulas say, within 1% …………………… 4 of 4 ✓", "Take along", "blocks.1 │", "1.88 GB"]);
        assert_eq!(text.matches(sent).count(), 3, "{sent} in\n{text}");
        assert_eq!(text.matches("Who holds what, stage").count(), 4, "{text}");
    }
}

#[test]
fn one_rank_and_many_ranks_train_too() {
    for flags in ["--ranks 1 --steps 2", "--ranks 7 --steps 2 --zero 3", "--ranks 2 --grad-accum 2 --steps 2 --ascii"] {
        let text = succeeded(&lab04(flags));
        assert!(text.contains("Take along") && (!flags.contains("ascii") || text.is_ascii()), "{text}");
    }
}

#[test]
fn a_budget_leaves_out_what_does_not_fit() {
    // 16 bytes a parameter are 437 kB; stage 2 on 4 ranks holds 7 of them.
    let text = succeeded(&lab04("--memory-limit 0.2 --steps 2"));
    has(&text, &["every rank stays within its memory", "of 0.2 MB ✓", "stage 3 trains what stage 2 trains"]);
    assert!(!text.contains("Who holds what, stage 1"), "{text}");
    let refused = lab04("--memory-limit 0.2 --zero 0");
    failed(&refused, 2, "--zero 0 takes 437 kB a rank, and --memory-limit is 200 kB");
    has(&stderr(&refused), &["help: --zero 2 takes 191 kB and fits"]);
    let none = lab04("--memory-limit 0.05");
    failed(&none, 2, "--zero 3 takes 109 kB a rank");
    has(&stderr(&none), &["help: no stage fits on 4 ranks; --zero 3 would on 9 ranks"]);
}

#[test]
fn shares_may_be_in_files() {
    let text = succeeded(&lab04("--offload . --steps 3"));
    assert_eq!(text.matches("bitwise equal ✓").count(), 3, "{text}");
    assert_eq!(text.matches(" of it in files").count(), 4, "{text}");
    has(&text, &["; 54.7 kB of it in files", "; 82.0 kB of it in files", "4 of 4 ✓"]);
    // Without it stage 3 takes 109 kB on 4 ranks; with it gradients are all that is in memory.
    has(&succeeded(&lab04("--offload . --memory-limit 0.03 --steps 2")), &["Who holds what, stage 3", "of 0.03 MB ✓"]);
    failed(&lab04("--offload nowhere --steps 2"), 2, "cannot make a file in --offload nowhere: ");
}

/// The bytes that a stage's line of the bill has for a moment.
fn for_a_moment(text: &str, stage: usize) -> f64 {
    let line = text.lines().find(|line| line.starts_with(&format!("      {stage}  ")) && line.contains('Ψ')).unwrap();
    let words: Vec<&str> = line.split_once('Ψ').unwrap().1.split_whitespace().collect();
    words[0].parse::<f64>().unwrap() * if words[1] == "MB" { 1e6 } else { 1e3 }
}

#[test]
fn tiles_bound_what_is_gathered_at_once() {
    let one_at_a_time = "--fsdp full-shard --steps 3 --wrap parameters --prefetch-bucket 0";
    let whole = succeeded(&lab04(one_at_a_time));
    let tiled = succeeded(&lab04(&format!("{one_at_a_time} --tiles 4")));
    has(&tiled, &["blocks.1.fc.weight.tile3 │", "stage 3 trains what stage 0 trains", "2 of 2 ✓"]);
    // What is largest now is a block's qkv, whose size is three quarters of what that of its fc was.
    let ratio = for_a_moment(&tiled, 3) / for_a_moment(&whole, 3);
    assert!(ratio < 0.75, "{ratio}\n{whole}\n{tiled}");
    failed(&lab04("--tiles 3"), 2, "--tiles 3 does not divide --embd 32");
    let both = lab04("--fsdp full-shard --zero 3");
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}

#[test]
fn what_is_wrong_is_found() {
    let local = failed(&lab04("--break local-norm --steps 3 --lr 0.1"), 1, "stage 1 trained something else");
    assert_eq!(local.matches("trains what stage 0 trains").count(), 3, "{local}");
    assert!(!local.contains("bitwise equal"), "{local}");
    let padding = failed(&lab04("--break padding-on-last"), 1, "padding was taken for parameters");
    has(&padding, &["     2         1        3       0\n", "     3         0        4       7\n", "12 of 9 ✗"]);
    failed(&lab04("--break padding-on-last --ranks 2"), 2, "padding spans ranks only from 3 ranks on");
    let released = lab04("--break used-after-release --steps 2");
    failed(&released, 1, "rank ");
    let says =
        ["parameter wte.weight [65, 32] is divided among 4 ranks", "holds 520 elements: 1560 to 2079", "Zero::whole"];
    has(&stderr(&released), &says);
}

#[test]
fn a_batch_that_ranks_cannot_share_is_refused_before_work() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab04"));
    let refused = command.args(["--global-batch", "3", "--grad-accum", "2"]).output().unwrap();
    failed(&refused, 2, "--global-batch 3 cannot be divided among 4 ranks x 2 micro-steps");
    has(&stderr(&refused), &["help: give a multiple of 8, such as 8;"]);
    let shared =
        Command::new(env!("CARGO_BIN_EXE_lab03")).args(["--global-batch", "24", "--dry-run"]).output().unwrap();
    has(&succeeded(&shared), &["12 sequences x 2 ranks"]);
}

#[test]
fn flags_that_would_do_nothing_are_refused_before_work() {
    for (flags, says) in [
        ("--eval-only", "lab04 compares trainings from the start, and has no --eval-only"),
        ("--dry-run", "lab04 compares trainings from the start, and has no --dry-run"),
        ("--trace o.json", "lab04 compares trainings from the start, and has no --trace"),
        ("--memory-limit 0", "--memory-limit 0 is out of range"),
        ("--memory-limit nan", "--memory-limit NaN is out of range"),
        ("--tiles 2 --zero 2", "--tiles is for gathered parameters, and --zero 2 gathers none"),
        ("--break local-norm --ranks 1", "--break needs ranks that can differ"),
        ("--break local-norm --clip 0", "--break local-norm clips, and --clip is 0"),
        ("--break local-norm --zero 0", "--break local-norm shows beside stage 0"),
        ("--break local-norm --memory-limit 0.2", "--break local-norm shows beside stage 0"),
        ("--break used-after-release --zero 2", "--break used-after-release is about stage 3"),
        ("--ranks 32", "27328 parameters in 15 tensors are too few for 32 ranks"),
    ] {
        failed(&lab04(flags), 2, says);
    }
}
