//! lab07 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{failed, fits, has, is_narrow, program, stderr, succeeded};
use std::process::{Command, Output};

/// A model of 25,280 parameters if it has 2 layers, for some vocabulary.
const SMALL: &str = "--heads 4 --embd 32 --block 16 --batch 1 --warmup 2 --lr 0.01";

fn lab07(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab07"));
    command
        .current_dir(dir.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab07 starts")
}

fn small(flags: &str) -> Output {
    let layers = if flags.contains("--layers") { "" } else { "--layers 2" };
    lab07(&format!("{SMALL} {layers} {flags}"))
}

#[test]
fn eight_ranks_train_what_one_rank_trains() {
    let text = succeeded(&lab07("--block 32"));
    fits(&text, 45);
    assert_eq!(text.matches(" ✓\n").count(), 7, "{text}");
    has(
        &text,
        &[
            "2 data x 2 pipeline x 2 tensor · ZeRO-1 over data · 1f1b",
            "16 sequences per step",
            "20 steps",
        ],
    );
    has(
        &text,
        &[
            "[0 1] [2 3] [4 5] [6 7]",
            "[0 4] [1 5] [2 6] [3 7]",
            "[0 2] [1 3] [4 6] [5 7]",
            "Takeaway",
        ],
    );
    assert!(succeeded(&small("--steps 2 --ascii")).is_ascii());
}

#[test]
fn any_factorisation_trains_the_same_model() {
    for flags in [
        "--ranks 1 --tp 1 --pp 1",
        "--ranks 3 --tp 1 --pp 1",
        "--ranks 4 --tp 4 --pp 1 --make-vocab-size-divisible-by 8",
        "--ranks 2 --tp 1 --pp 2 --schedule gpipe --zero 0",
        "--ranks 8 --layers 4 --schedule interleaved --order data --dropout 0.1",
        "--ranks 8 --schedule zero-bubble --zero 0 --micro-batches 3",
        "--ranks 6 --tp 1 --pp 3 --layers 7 --chunks 2 --schedule interleaved --micro-batches 6",
    ] {
        let text = succeeded(&small(&format!("{flags} --steps 6")));
        assert_eq!(text.matches(" ✓\n").count(), 7, "{flags}\n{text}");
        is_narrow(&text);
    }
}

/// Each mistake trains on, and exactly these checks see it.
#[test]
fn mistakes_look_plausible_and_are_noticed() {
    let checks = [
        "losses are one",
        "first gradient norm",
        "clip by one norm",
        "copies of parameters",
        "bytes on each axis",
    ];
    for (mistake, unsound) in [
        ("local-norm", &checks[..4]),
        ("untied", &[checks[0], checks[1], checks[3], checks[4]]),
        ("early-average", &checks[..2]),
    ] {
        let output = small(&format!("--steps 12 --break {mistake}"));
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        for check in checks {
            let line =
                text.lines().find(|line| line.starts_with("  check") && line.contains(check));
            let mark = line
                .unwrap_or_else(|| panic!("{check} is missing in\n{text}"))
                .chars()
                .last()
                .unwrap();
            assert_eq!(
                mark,
                if unsound.contains(&check) { '✗' } else { '✓' },
                "{mistake}: {check}\n{text}"
            );
        }
        assert_eq!(output.status.code(), Some(1), "{mistake}");
        let row = |step: &str| {
            let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let row = rows.find(|row| row.len() == 5 && row[0] == step && row[1].contains('.'));
            row.expect(step)[1].parse::<f64>().unwrap()
        };
        assert!(row("12") < row("1"), "{mistake}: it trains\n{text}");
    }
}

#[test]
fn a_run_is_reported_as_megatron_reports_one() {
    let text = succeeded(&small("--steps 8 --report"));
    is_narrow(&text);
    has(
        &text,
        &[
            "using world size: 8, data-parallel size: 2, tensor-model-parallel size: 2,\n",
            "  hidden_size ..................................... 32\n",
            "  use_distributed_optimizer ....................... True\n",
            "> initialized pipeline model parallel with size 2\n",
            " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): ",
            "    model-and-optimizer-setup ......................: (",
            " iteration        1/       8 | consumed samples:            8 |\n",
            " lm loss: 4.",
            "| loss scale: 1.0 |",
            "grad norm: ",
            "number of skipped iterations:   0 |",
            " iteration        8/       8 | consumed samples:           64 |\n",
            " > datasets target sizes (minimum size):\n    train:      64\n    validation: 0\n    test:       0\n",
            "Theoretical memory footprints: weight and optimizer=",
            "[Rank 7] (after 1 iterations) memory (MB) | allocated: ",
            "    forward-backward ...............................: (",
            "    optimizer ......................................: (",
            "Takeaway",
        ],
    );
    // Without data ranks there is nothing to distribute the optimizer to.
    let text = succeeded(&small(
        "--ranks 4 --layers 4 --steps 1 --chunks 2 --schedule interleaved --report run",
    ));
    has(
        &text,
        &[
            "Number of virtual stages per pipeline stage: 2\n",
            "use_distributed_optimizer ....................... False",
        ],
    );
}

#[test]
fn the_sources_log_is_rebuilt() {
    let text = succeeded(&lab07("--report source"));
    is_narrow(&text);
    has(
        &text,
        &[
            "using world size: 8, data-parallel size: 1, tensor-model-parallel size: 2,\n",
            "Number of virtual stages per pipeline stage: 4\n",
            " > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)\n",
            "rank (0, 0):\n    156577792\n",
            "rank (1, 1):\n    100741120\n",
            "rank (0, 3):\n    152387584\n",
            "Number of parameters in most loaded shard in billions: 0.1523\n",
            "weight and optimizer=2614.79 MB\n",
            "[Rank 0] (after 1 iterations) memory (MB) | allocated: 1941.90 |\n",
            "156,577,792     1791.89    1941.90    150.00\n",
        ],
    );
}

#[test]
fn a_link_shows_what_each_axis_waits_for() {
    let text = succeeded(&small("--steps 2 --link 1ms,1GB/s"));
    has(&text, &["measured  in calls\n"]);
    is_narrow(&text);
    assert!(!succeeded(&small("--steps 2")).contains("in calls"));
}

#[test]
fn a_plan_needs_no_run() {
    let text = succeeded(&lab07("--dry-run --ranks 64 --tp 4 --pp 4"));
    has(&text, &["4 data x 4 pipeline x 4 tensor", "48 more ranks like these."]);
    assert!(!text.contains("check"), "{text}");
    is_narrow(&text);
}

#[test]
fn jobs_that_do_not_fit_on_their_ranks_are_refused() {
    for (flags, message, help) in [
        (
            "--tp 3",
            "a mesh of 1 data x 2 pipeline x 3 tensor needs 6 ranks, but there are 8",
            "start a multiple of 6",
        ),
        ("--tp 8 --pp 1", "8 tensor ranks cannot share 4 heads", "choose --tp at most 4"),
        ("--pp 4", "4 stages cannot share 2 layers", "choose at most 2 stages"),
        ("--chunks 2", "1f1b runs 1 chunk per rank, not 2", "--schedule interleaved"),
        (
            "--ranks 2 --pp 1 --chunks 2",
            "2 chunks on a pipeline of 1 rank",
            "--pp 2 or more",
        ),
        ("--micro-batches 0", "invalid value '0'", "from 1 to 65536"),
        (
            "--grad-accum 2",
            "invalid value '2' for '--grad-accum <GRAD_ACCUM>': a pipeline's micro-batches are its micro-steps",
            "give --micro-batches",
        ),
        ("--break untied --pp 1", "one stage has one token table", "give --pp 2"),
        (
            "--break early-average --micro-batches 1",
            "the first micro-batch is also the last",
            "--micro-batches 2",
        ),
        (
            "--break early-average --ranks 4",
            "one replica averages with no other",
            "twice as many ranks",
        ),
        ("--zero 2", "invalid value '2' for '--zero <STAGE>'", "help"),
    ] {
        let output = small(flags);
        failed(&output, 2, message);
        has(&stderr(&output), &[help]);
    }
}
