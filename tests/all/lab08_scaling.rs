//! `lab08 --fp16` as its users start it: the loss scale, the rules, the mistake, and what is
//! refused.

use crate::suite::program::{failed, fits, has, program, stdout, succeeded};
use std::process::{Command, Output};

fn lab08(flags: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab08"));
    command
        .current_dir(folder.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab08 starts")
}

fn small(flags: &str) -> Output {
    lab08(&format!("--fp16 --layers 1 --embd 16 --block 16 --lr 0.01 {flags}"))
}

#[test]
fn the_first_iterations_overflow_and_are_skipped() {
    let text = succeeded(&small("--steps 40"));
    fits(&text, 49);
    assert_eq!(text.matches(" ✓\n").count(), 5, "{text}");
    // The source's log begins with these figures, and without a loss.
    has(
        &text,
        &[
            "iteration=       1/      40",
            "loss_scale=4294967296.0",
            "number_of_skipped_iterations=  1",
        ],
    );
    let first = text
        .split_once("iteration=       1/")
        .unwrap()
        .1
        .split_once(" more skipped")
        .unwrap()
        .0;
    assert!(!first.contains("lm loss") && text.contains("lm loss="), "{text}");
    // Hysteresis is 2, so the scale has been halved once less than steps were skipped before the
    // first that trained.
    let skipped: i32 = first.rsplit_once(".. ").unwrap().1.parse::<i32>().unwrap() + 1;
    has(&text, &[&format!("loss_scale={:.1} ", 2f64.powi(32 - (skipped - 1)))]);
    // The rules, computed by running them. DeepSpeed's was Megatron-LM's until 0.17.1.
    let cells = |name: &str| -> Vec<&str> {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("  {name} "))).unwrap();
        line.split_whitespace().collect()
    };
    for name in ["Megatron-LM", "DeepSpeed to 0.17.0"] {
        assert_eq!(cells(name).join(" "), "16 16 16 17 17 17 16 16 16 16 17 17 17", "{name}");
    }
    assert_eq!(cells("from 0.17.1 on").join(" "), "16 16 16 16 17 17 16 16 16 16 16 17 17");
}

#[test]
fn the_first_scale_is_the_rules_or_the_flags() {
    let text = succeeded(&small("--steps 6 --scaler deepspeed-0.17.1"));
    has(&text, &["loss_scale=65536.0", "loss     4."]);
    // No step overflows, and the scale grows.
    let text = succeeded(&small("--steps 6 --initial-scale-power 8 --window 2"));
    has(&text, &["loss_scale=256.0", "in 6 steps; 0 more skipped later", "0 of 6 ✓"]);
    // Too short a run for this scale: nothing was trained, and every check still holds.
    let text = succeeded(&small("--steps 3"));
    has(&text, &["no step was taken", "3 of 3 ✓"]);
}

/// The mistake trains on, and its loss falls. Only the comparison with f32 shows it.
#[test]
fn clipping_before_unscaling_is_found() {
    let output = small("--steps 40 --break clip-first");
    let text = stdout(&output);
    assert!(!output.status.success(), "{text}");
    has(&text, &["f32 with a scale = f32 without", "different ✗"]);
    assert_eq!((text.matches(" ✓\n").count(), text.matches(" ✗\n").count()), (4, 1), "{text}");
    failed(&output, 1, "gradients are clipped before they are unscaled");
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    for (flags, what) in [
        (
            "--break clip-first",
            "the following required arguments were not provided: --fp16",
        ),
        ("--fp16 --break one-rank", "--break one-rank does not go with --fp16"),
        (
            "--fp16 --policy auto",
            "the argument '--fp16' cannot be used with '--policy <POLICY>'",
        ),
        (
            "--fp16 --zero 2",
            "fp16 is emulated where a rank has all gradients, and ZeRO-2 has a shard",
        ),
        ("--fp16 --window 0", "invalid value '0' for '--window <STEPS>'"),
        (
            "--fp16 --initial-scale-power 128",
            "invalid value '128' for '--initial-scale-power <N>'",
        ),
        ("--window 5", "the following required arguments were not provided: --fp16"),
    ] {
        failed(&lab08(flags), 2, what);
    }
}
