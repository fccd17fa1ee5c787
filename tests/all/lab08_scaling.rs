//! `lab08 --fp16` as its users start it: the loss scale, the rules, the mistake.

use crate::suite::program::{failed, has, lab, passes, stdout, succeeded};
use std::process::Output;

fn small(flags: &str) -> Output {
    lab("lab08", &format!("--fp16 --layers 1 --embd 16 --block 16 --lr 0.01 {flags}"))
}

#[test]
fn the_first_iterations_overflow_and_are_skipped() {
    let text = succeeded(&small("--steps 40"));
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

/// No step overflows, and the scale grows; or the run is too short for its scale, and nothing is
/// trained.
#[test]
fn other_scales_pass_the_checks() {
    for flags in ["--steps 6 --initial-scale-power 8 --window 2", "--steps 3"] {
        let small = "--fp16 --layers 1 --embd 16 --block 16";
        passes("lab08", &[&format!("{small} {flags}")]);
    }
    let text = succeeded(&small("--steps 6 --scaler deepspeed-0.17.1"));
    has(&text, &["loss_scale=65536.0"]);
}
