//! lab05 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{
    bars_are_to_one_scale, failed, fits, has, is_narrow, program, stderr, succeeded,
};
use std::process::{Command, Output};

/// A model of 25,280 parameters, for some vocabulary.
const SMALL: &str = "--layers 2 --heads 4 --embd 32 --block 16 --batch 4 --warmup 2";

fn lab05(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab05"));
    command
        .current_dir(dir.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab05 starts")
}

fn small(flags: &str) -> Output {
    lab05(&format!("{SMALL} {flags}"))
}

#[test]
fn shared_layers_are_one_ranks() {
    for (flags, calls) in [
        ("--ranks 2", "5 + 5, 10 + 10"),
        ("--ranks 4 --make-vocab-size-divisible-by 8", "5 + 5, 10 + 10"),
    ] {
        let text = succeeded(&small(&format!("{flags} --steps 4")));
        fits(&text, 45);
        assert_eq!(text.matches(" ✓\n").count(), 11, "{text}");
        has(&text, &["bitwise equal ✓", calls, "Takeaway"]);
        bars_are_to_one_scale(&text);
        has(&text, &["2 + 2 all-reduces", "4 + 4 gather/scatter", "(8 + 72/t) sbh"]);
    }
    // One rank shares with no other rank.
    has(&succeeded(&small("--ranks 1 --steps 2")), &["0 + 0 ✓", "Takeaway"]);
    let ascii = succeeded(&small("--steps 2 --ascii"));
    assert!(ascii.is_ascii(), "{ascii}");
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
        lab05(&format!(
            "--layers 2 --heads {heads} --embd {width} --block 12 --batch 2 --warmup 2 --steps 1 --ranks {ranks} {flags}"
        ))
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

#[test]
fn a_shared_model_is_trained_in_full() {
    let evaluation = "--steps 6 --eval-iters 2 --out o";
    for flags in [
        "--tp 2",
        "--tp 2 --sp --dropout 0.1",
        "--tp 2 --ranks 4 --zero 3 --sp",
        "--tp 2 --ranks 4 --zero 1 --grad-accum 2",
        "--tp 1 --ranks 2 --zero 2",
        "--tp 4 --dtype bf16 --make-vocab-size-divisible-by 128",
    ] {
        let text = succeeded(&small(&format!("{flags} {evaluation}")));
        has(
            &text,
            &[
                "ranks compared with 1 rank",
                "all ranks hold the same model",
                "the validation loss fell",
            ],
        );
        has(&text, &["in the tensor group's collectives", "saved o"]);
        let sent = text.split("\n  sent ").nth(1).unwrap_or_else(|| panic!("{text}"));
        let sent = sent.split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        assert!(sent.contains(" per step = ") && sent.contains("norm ✓"), "{flags}: {sent}");
        is_narrow(&text);
    }
}

/// The weights that tensor ranks save are the whole model's: any number of ranks goes on with them.
#[test]
fn another_run_goes_on_with_the_weights() {
    let dir = tempfile::tempdir().unwrap();
    let run = |flags: &str| {
        let mut command = Command::new(program("lab05"));
        command
            .current_dir(dir.path())
            .env("NO_COLOR", "")
            .env_remove("SHARDLAB_CORPUS");
        succeeded(&command.args(flags.split_whitespace()).output().unwrap())
    };
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

#[test]
fn pictures_need_no_ranks() {
    let sum = succeeded(&lab05("--show sum"));
    has(&sum, &["  rank 2  3·[5 6] = [15 18]  [22 28] = y      [22 28] = y\n"]);
    let gemm = succeeded(&lab05("--show gemm"));
    has(
        &gemm,
        &["By columns", "By rows", "2 4 ░ ░", "1 2 4 1", "all-gather", "all-reduce"],
    );
    has(&succeeded(&lab05("--show gemm --ascii")), &["By rows", "->"]);
    let mesh = succeeded(&lab05("--show mesh"));
    has(
        &mesh,
        &[
            "Using topology: {ProcessCoord(pipe=0, data=0, model=0): 0,",
            "data      [0 2] [1 3] [4 6] [5 7]  inside a node",
        ],
    );
    has(&mesh, &["pipeline  [0 4] [1 5] [2 6] [3 7]  across 2 nodes"]);
    let other = succeeded(&lab05("--show mesh --order data"));
    has(
        &other,
        &[
            "pipeline  [0 2] [1 3] [4 6] [5 7]  inside a node",
            "data      [0 4] [1 5] [2 6] [3 7]  across 2 nodes",
        ],
    );
    let wide = succeeded(&lab05("--show mesh --ranks 16 --tp 8 --pp 1"));
    let wide = wide.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &wide,
        &[
            "warning: tensor ranks 0, 1, 2, 3, 4, 5, 6, 7 are on 2 nodes",
            "--tp at most 4",
            "TP <= devices per node",
        ],
    );
    failed(
        &lab05("--show mesh --ranks 6 --tp 4"),
        2,
        "a mesh of 1 data x 2 pipeline x 4 tensor needs 8 ranks, but there are 6",
    );
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    for (flags, message, help) in [
        ("--tp 8", "8 tensor ranks cannot share 4 heads", "choose --tp at most 4"),
        (
            "--tp 3",
            "4 heads cannot be divided evenly among 3 tensor ranks",
            "choose --tp among 1, 2, 4",
        ),
        ("--ranks 3", "4 heads cannot be divided evenly among 3", "choose --tp among"),
        (
            "--tp 2 --ranks 3",
            "a mesh of 1 data x 1 pipeline x 2 tensor needs 2 ranks, but there are 3",
            "start a multiple of 2",
        ),
        ("--tp 0", "a mesh of 1 data x 1 pipeline x 0 tensor is not possible", "help: "),
        (
            "--tp 2 --tiles 2",
            "invalid value '2' for '--tiles <TILES>': tensor ranks cut every matrix anyway",
            "leave it out",
        ),
        (
            "--break mean --ranks 1",
            "--break needs ranks that can differ",
            "give --ranks 2 or more",
        ),
    ] {
        let output = small(flags);
        failed(&output, 2, message);
        has(&stderr(&output), &[help]);
    }
    let output = lab05("--layers 1 --heads 4 --embd 32 --block 18 --batch 2 --tp 4 --sp");
    failed(&output, 2, "sequences of 18 tokens cannot be divided evenly among 4");
    has(&stderr(&output), &["train without --sp"]);
    for flags in [
        "--sp",
        "--tp 2 --break mean",
        "--zero 1",
        "--eval-iters 2",
        "--all",
        "--dry-run",
        "--pp 2",
    ] {
        assert_eq!(small(flags).status.code(), Some(2), "{flags}");
    }
}

#[test]
fn a_benchmark_compares_tensor_parallelism_with_ddp() {
    let text = succeeded(&small("--bench --link 1ms,100MB/s"));
    has(
        &text,
        &[
            "2 ranks over this machine's memory",
            "2 ranks over a link of 100 MB/s",
            "TP + SP",
            "DDP",
            "1.00 x",
        ],
    );
    is_narrow(&text);
}
