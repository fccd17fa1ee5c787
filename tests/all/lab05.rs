//! lab05 as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{has, lab, lab_in, passes, stderr, succeeded};
use std::process::Output;

/// A model of 25,280 parameters, for some vocabulary.
const SMALL: &str = "--layers 2 --heads 4 --embd 32 --block 16 --batch 4 --warmup 2";

fn small(flags: &str) -> Output {
    lab("lab05", &format!("{SMALL} {flags}"))
}

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --steps 2",
        "--ranks 2 --steps 4",
        "--ranks 4 --make-vocab-size-divisible-by 8 --steps 4",
        "--tp 2 --steps 6 --eval-iters 2",
        "--tp 2 --sp --dropout 0.1 --steps 6 --eval-iters 2",
        "--tp 2 --ranks 4 --zero 3 --sp --steps 6 --eval-iters 2",
        "--tp 2 --ranks 4 --zero 1 --grad-accum 2 --steps 6 --eval-iters 2",
        "--tp 1 --ranks 2 --zero 2 --steps 6 --eval-iters 2",
        "--tp 4 --dtype bf16 --make-vocab-size-divisible-by 128 --steps 6 --eval-iters 2",
        "--bench --link 1ms,100MB/s",
    ] {
        passes("lab05", &[&format!("{SMALL} {flags}")]);
    }
    passes("lab05", &["--show gemm --ascii", "--show mesh"]);
}

/// Each mistake trains on, and exactly these checks see it.
#[test]
fn mistakes_look_plausible_and_are_noticed() {
    for (mistake, sound, unsound) in [
        (
            "no-g",
            &["parameters on each rank"][..],
            &["first loss", "every gradient", "6 steps", "collective calls"][..],
        ),
        (
            "mean",
            &["parameters on each rank", "collective calls"],
            &["first loss", "every gradient", "6 steps"],
        ),
        (
            "unsharded",
            &["first loss", "every gradient", "6 steps"],
            &["parameters on each rank", "collective calls", "activations"],
        ),
        (
            "head-twice",
            &["first loss", "parameters on each rank"],
            &["every gradient", "6 steps", "collective calls"],
        ),
        (
            "same-seed",
            &[
                "parameters on each rank",
                "dropout masks",
                "collective calls",
                "activations",
                "bytes sent",
            ],
            &["begins with slices", "first loss", "every gradient", "6 steps"],
        ),
    ] {
        let output = small(&format!("--steps 6 --break {mistake}"));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let mark = |check: &str| {
            let line =
                text.lines().find(|line| line.starts_with("  check") && line.contains(check));
            line.unwrap_or_else(|| panic!("{check} is missing in\n{text}"))
                .chars()
                .last()
                .unwrap()
        };
        sound
            .iter()
            .for_each(|check| assert_eq!(mark(check), '✓', "{mistake}: {check}\n{text}"));
        unsound
            .iter()
            .for_each(|check| assert_eq!(mark(check), '✗', "{mistake}: {check}\n{text}"));
        assert_eq!(output.status.code(), Some(1), "{mistake}");
        let losses: Vec<f64> = text
            .lines()
            .filter(|line| line.starts_with("  loss, step "))
            .map(|line| line.split_whitespace().last().unwrap().parse().unwrap())
            .collect();
        assert!(losses.len() == 2 && losses[1] < losses[0], "{mistake}: it trains\n{text}");
    }
}

/// The check needs no second model: it compares hashes of slices. Norms, positions and padding are
/// equal by right.
#[test]
fn ranks_that_seed_alike_are_found_before_the_first_step() {
    let of = |ranks: usize, flags: &str| {
        let heads = if ranks == 3 { 6 } else { 4 };
        let width = 8 * heads;
        let flags = format!(
            "--layers 2 --heads {heads} --embd {width} --block 12 --batch 2 --warmup 2 --steps 1 --ranks {ranks} {flags}"
        );
        lab("lab05", &flags)
    };
    let line = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.split("  check    no two ranks begin with the same slice").nth(1);
        let line = line.unwrap_or_else(|| panic!("{text}"));
        line.split("\n  check").next().unwrap_or_default().to_string()
    };
    // Two blocks have 8 matrices that are cut, and the token table is the ninth.
    for ranks in [2, 3, 4] {
        let right = of(ranks, "");
        succeeded(&right);
        assert!(line(&right).ends_with(" 9 matrices ✓"), "{}", line(&right));
        let broken = of(ranks, "--break same-seed");
        let alike = line(&broken);
        assert!(alike.contains("9 of 9 alike: wte.weight on ranks 0 and 1 ✗"), "{alike}");
        assert_eq!(broken.status.code(), Some(1));
        // The MLPs' slices get the same gradients, so training leaves them alike. Attention drops
        // other weights on each rank.
        has(
            &stderr(&broken),
            &["9 of 9 cut matrices, and still have the same in 4 after 1 steps"],
        );
    }
    // Ranks 1 to 3 have nothing but the table's padding.
    let padded = of(4, "--make-vocab-size-divisible-by 128");
    succeeded(&padded);
    assert!(line(&padded).ends_with(" 9 matrices ✓"), "{}", line(&padded));
}

/// The weights that tensor ranks save are the whole model's: any number of ranks goes on with them.
#[test]
fn another_run_goes_on_with_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let run = |flags: &str| succeeded(&lab_in(dir.path(), "lab05", flags));
    let first = run(&format!("{SMALL} --tp 2 --steps 6 --eval-iters 2 --out a"));
    let again = run("--tp 4 --batch 4 --init-from a --steps 2 --eval-iters 2 --out b");
    let loss = |text: &str, step: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("step={step} train_loss=")))
            .expect(step);
        line.split_whitespace().nth(2).unwrap().to_string()
    };
    assert_eq!(loss(&first, "6"), loss(&again, "0"), "{first}\n{again}");
}
