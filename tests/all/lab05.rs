//! lab05 as its users start it: its checks, ranks that seed alike, weights, exit codes.

use crate::suite::program::{has, lab, lab_in, passes, stderr, stdout, succeeded};

/// A model of 25,280 parameters, for some vocabulary.
const SMALL: &str = "--layers 2 --heads 4 --embd 32 --block 16 --batch 4 --warmup 2";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --steps 2",
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
}

/// The check needs no second model: it compares hashes of slices. Norms, positions and padding are
/// equal by right.
#[test]
fn ranks_that_seed_alike_are_found_before_the_first_step() {
    // Two blocks have 8 matrices that are cut, and the token table is the ninth.
    for shape in ["--ranks 3 --heads 6 --embd 48", "--ranks 4 --heads 4 --embd 32"] {
        let of = |flags: &str| {
            let small = "--layers 2 --block 12 --batch 2 --warmup 2 --steps 1";
            lab("lab05", &format!("{small} {shape} {flags}"))
        };
        let right = succeeded(&of(""));
        let line = right.lines().find(|line| line.contains("begin with the same slice")).unwrap();
        assert!(line.ends_with(" 9 matrices ✓"), "{line}");
        let broken = of("--break same-seed");
        has(&stdout(&broken), &["9 of 9 alike: wte.weight on ranks 0 and 1 ✗"]);
        assert_eq!(broken.status.code(), Some(1));
        // The MLPs' slices get the same gradients, so training leaves them alike. Attention drops
        // other weights on each rank.
        has(
            &stderr(&broken),
            &["9 of 9 cut matrices, and still have the same in 4 after 1 steps"],
        );
    }
    // Ranks 1 to 3 have nothing but the table's padding.
    passes(
        "lab05",
        &[&format!("{SMALL} --ranks 4 --make-vocab-size-divisible-by 128 --steps 1")],
    );
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
