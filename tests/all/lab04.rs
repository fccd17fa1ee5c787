//! lab04 as its users start it: what is on the screen, and exit codes.

use crate::suite::program::{bars_are_to_one_scale, failed, fits, has, program, stderr, succeeded};
use std::path::Path;
use std::process::{Command, Output};

/// A model of 27,328 parameters.
const SMALL: &str = "--layers 2 --heads 2 --embd 32 --block 16 --batch 2 --warmup 2";

fn lab04(flags: &str) -> Output {
    plain(&format!("{SMALL} {flags}"))
}

/// With these flags alone.
fn plain(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab04"));
    command
        .current_dir(dir.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab04 starts")
}

/// The line of a table that begins with this, without the beginning.
#[track_caller]
fn line<'a>(text: &'a str, beginning: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning));
    line.unwrap_or_else(|| panic!("{beginning:?} is missing in\n{text}")).trim()
}

#[test]
fn all_stages_train_the_same_and_hold_what_the_formulas_say() {
    for (ranks, precision, sent) in
        [(2, "f32", "1.00 Ψ"), (4, "f32", "1.50 Ψ"), (3, "bf16", "1.33 Ψ")]
    {
        let text = succeeded(&lab04(&format!("--ranks {ranks} --dtype {precision} --steps 3")));
        // In 16 bits the master copy takes one line more.
        fits(&text, if precision == "bf16" { 46 } else { 45 });
        for stage in 1..4 {
            has(&text, &[&format!("stage {stage} trains what stage 0 trains ")]);
        }
        assert_eq!(text.matches("bitwise equal ✓").count(), 3, "{text}");
        has(
            &text,
            &[
                "every rank clips by the same norm",
                "within 1% of the formulas ………………………………… 4 of 4 ✓",
                "Takeaway",
            ],
        );
        has(&text, &["Predicted: 2.65 billion"]);
        // Every stage whose step is predicted has room for its activations, but stage 0.
        for row in ["  needs, 2k", "  needs, 8k"] {
            assert_eq!(line(&text, row).matches(['✓', '✗']).collect::<String>(), "✗✓✓✓", "{text}");
        }
        bars_are_to_one_scale(&text);
        assert_eq!(text.matches(sent).count(), 3, "{sent} in\n{text}");
        assert_eq!(line(&text, "  holds  ").matches('✓').count(), 4, "{text}");
        assert_eq!(text.matches("rank 0").count(), 0, "{text}");
    }
    let pictures = succeeded(&lab04("--show holdings --steps 2"));
    assert_eq!(pictures.matches("rank 0        rank 1").count(), 4, "{pictures}");
    has(
        &pictures,
        &["optimizer   000░░░░░░░░░  ░░░111░░░░░░  ░░░░░░222░░░  ░░░░░░░░░333"],
    );
}

/// Stages 2 and 3 communicate in every micro-step; what is said beside the bytes says so, too.
#[test]
fn accumulation_makes_stages_2_and_3_send_more() {
    let text = succeeded(&lab04("--grad-accum 4 --steps 2"));
    let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    has(
        &words,
        &["A step has M = 4 micro-steps", "(M+1)(n-1)/n Ψ in stage 2", "3M(n-1)/n Ψ"],
    );
    has(&words, &["formula 2(n-1)/n Ψ 2(n-1)/n Ψ 5(n-1)/n Ψ 12(n-1)/n Ψ"]);
    let sends: Vec<&str> =
        line(&text, "  sends  ").split("  ").filter(|cell| !cell.is_empty()).collect();
    assert!(sends.len() == 4 && sends.iter().all(|cell| cell.ends_with('✓')), "{text}");
    let numbers: Vec<f64> = line(&text, "    in numbers")
        .split('Ψ')
        .filter_map(|number| number.trim().parse().ok())
        .collect();
    // Stage 3 gathers small parameters once per step.
    assert!(numbers[..3] == [1.5, 1.5, 3.75] && (8.8..=9.0).contains(&numbers[3]), "{text}");
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

/// The program beside the page on memory.
#[test]
fn a_ranks_memory_is_what_the_formulas_say() {
    let memory = |flags: &str| {
        let mut command = Command::new(program("memory"));
        command
            .env("NO_COLOR", "")
            .env_remove("SHARDLAB_CORPUS")
            .args(flags.split_whitespace())
            .output()
            .unwrap()
    };
    let text = succeeded(&memory(""));
    has(
        &text,
        &[
            "4 of 4 ✓",
            "recomputed",
            "72.2 sbh",
            "0.00100        1.00        2.00",
            "0.00400        2.00        5.00",
        ],
    );
    let other =
        succeeded(&memory("--layers 2 --embd 64 --block 128 --batch 5 --dropout 0.1 --ascii"));
    assert!(other.contains("4 of 4 ok") && other.is_ascii(), "{other}");
    // Where notes, the logits, attention's scores or the copy of a matrix are more than all that
    // the formulas had.
    for flags in [
        "--layers 1 --embd 16 --block 4",
        "--layers 4 --embd 64 --heads 2 --block 4 --global-batch 2",
        "--layers 2 --embd 8 --block 16 --global-batch 2",
        "--layers 3 --embd 8 --block 64 --batch 8",
        "--layers 2 --embd 32 --block 256 --batch 2",
        "--layers 1 --embd 8 --heads 1 --block 300 --batch 1",
        "--layers 3 --embd 256 --block 8 --batch 1",
        "--layers 1 --embd 8 --heads 1 --block 1 --batch 1 --dropout 0.1",
    ] {
        assert!(succeeded(&memory(flags)).contains("4 of 4 ✓"), "{flags}");
    }
    failed(&memory("--batch 0"), 2, "invalid value '0' for '--batch <");
}

#[test]
fn a_timeline_is_computed_and_shows_the_waiting() {
    let drawn = |flags: &str| succeeded(&plain(&format!("--show timeline --layers 3 {flags}")));
    let text = drawn("");
    assert_eq!(text, drawn(""), "it is arithmetic");
    for row in [
        "   prefetch │",
        "   blocks.2 │",
        "no prefetch │",
        "▲ gather   ▓ forward   ▒ backward   ▼ reduce-scatter   · waiting",
    ] {
        has(&text, &[row]);
    }
    let waits_in = |text: &str, row: &str| line(text, row).matches('·').count();
    assert!(
        waits_in(&text, "  no prefetch") > 2 * waits_in(&text, "     prefetch"),
        "{text}"
    );
    // A quick link leaves nothing to wait for, and neither does a rank that is alone.
    let quick = drawn("--link 1us,100GB/s");
    assert!(waits_in(&quick, "  no prefetch") == 0, "{quick}");
    has(&drawn("--ranks 1"), &["0 s of it waiting"]);
    has(&drawn("--zero 0"), &["╳ all-reduce", "one step of stage 0 on each of 4 ranks"]);
    assert!(!drawn("--zero 3 --prefetch-bucket 0").contains("no prefetch"));
}

#[test]
fn one_rank_and_many_ranks_train_too() {
    for flags in [
        "--ranks 1 --steps 2",
        "--ranks 7 --steps 6 --zero 3",
        "--ranks 2 --grad-accum 2 --steps 2 --ascii",
    ] {
        let text = succeeded(&lab04(flags));
        assert!(
            text.contains("Takeaway") && (!flags.contains("ascii") || text.is_ascii()),
            "{text}"
        );
    }
}

#[test]
fn a_budget_leaves_out_what_does_not_fit() {
    // 16 bytes a parameter are 437 kB; stage 2 on 4 ranks holds 7 of them.
    let text = succeeded(&lab04("--memory-limit 0.2 --steps 2"));
    has(
        &text,
        &[
            "every rank stays within its memory",
            "of 0.2 MB ✓",
            "stage 3 trains what stage 2 trains",
        ],
    );
    has(
        &text,
        &[
            "stage 1 does not fit into --memory-limit",
            "one rank      stage 2         stage 3\n",
        ],
    );
    let refused = lab04("--memory-limit 0.2 --zero 0");
    failed(&refused, 2, "--zero 0 takes 437 kB per rank, and --memory-limit is 200 kB");
    has(&stderr(&refused), &["help: --zero 2 takes 191 kB and fits"]);
    let none = lab04("--memory-limit 0.05");
    failed(&none, 2, "--zero 3 takes 109 kB per rank");
    has(&stderr(&none), &["help: no stage fits on 4 ranks; --zero 3 would on 9 ranks"]);
}

#[test]
fn shards_may_be_in_files() {
    let text = succeeded(&lab04("--offload . --steps 3 --show holdings"));
    assert_eq!(text.matches("bitwise equal ✓").count(), 3, "{text}");
    assert_eq!(text.matches(" of it in files").count(), 4, "{text}");
    has(&text, &["  54.7 kB of it in files", "  82.0 kB of it in files", "4 of 4 ✓"]);
    // Without --offload stage 3 takes 109 kB on 4 ranks. With it only the gradients are in memory.
    has(
        &succeeded(&lab04("--offload . --memory-limit 0.03 --steps 2")),
        &["one rank      stage 3\n", "of 0.03 MB ✓"],
    );
    failed(
        &lab04("--offload nowhere --steps 2"),
        2,
        "cannot make a file in --offload nowhere: ",
    );
}

/// The host's memory is not the rank's: it counts apart, and a limit does not count it.
#[test]
fn shards_may_be_on_the_host() {
    let text = succeeded(&lab04("--offload cpu --steps 3 --show holdings"));
    assert_eq!(text.matches("bitwise equal ✓").count(), 3, "{text}");
    has(
        &text,
        &["  54.7 kB of it on the host", "  82.0 kB of it on the host", "4 of 4 ✓"],
    );
    let row: Vec<&str> = line(&text, "    on the host ").split_whitespace().collect();
    assert_eq!(row.join(" "), "219 kB 54.7 kB 54.7 kB 82.0 kB", "{text}");
    has(
        &succeeded(&lab04("--offload cpu --memory-limit 0.03 --steps 2")),
        &["one rank       stage 3\n", "of 0.03 MB ✓"],
    );
}

/// DeepSpeed's line counts what is kept whole: here the gains, two of each block and the last.
#[test]
fn stage_3_says_what_it_keeps_whole() {
    let counted = |flags: &str| {
        let text = succeeded(&lab04(&format!("--zero 3 --steps 1 --eval-iters 1 {flags}")));
        line(&text, "Parameter Offload: Total persistent parameters: ").to_string()
    };
    assert_eq!(counted("--persistence-threshold 100"), "160 in 5 params");
    assert_eq!(counted("--persistence-threshold 0"), "0 in 0 params");
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
    has(&tiled, &["stage 3 trains what stage 0 trains", "4 of 4 ✓"]);
    // The largest unit is now a block's qkv, three quarters of the size that fc had.
    let ratio = peak(&tiled) / peak(&whole);
    assert!(ratio < 0.85, "{ratio}\n{whole}\n{tiled}");
    failed(&lab04("--tiles 3"), 2, "--tiles 3 does not divide --embd 32");
    // With stage 3 alone, too.
    has(
        &succeeded(&lab04("--fsdp full-shard --steps 6 --wrap parameters --tiles 2")),
        &["1 of 1 ✓"],
    );
    let both = lab04("--fsdp full-shard --zero 3");
    assert!(stderr(&both).contains("cannot be used with"), "{}", stderr(&both));
}

#[test]
fn what_is_wrong_is_found() {
    let local = failed(
        &lab04("--break local-norm --steps 3 --lr 0.1"),
        1,
        "stage 1 trained something else",
    );
    has(&local, &["expected 0.9848, found 0.", "rank  stage 0"]);
    // Each rank's own norm is shorter than that of all gradients, so the rank scales less.
    let norms: Vec<f64> = line(&local, "     2  ")
        .split("  ")
        .filter_map(|cell| cell.split(',').next()?.trim().parse().ok())
        .collect();
    assert!(norms.len() == 4 && norms[1..].iter().all(|norm| norm < &norms[0]), "{local}");
    assert_eq!(local.matches("trains what stage 0 trains").count(), 3, "{local}");
    assert!(!local.contains("bitwise equal"), "{local}");
    // Micro-steps let stages 2 and 3 differ from 0 and 1 in the last bits, and no stage from its
    // neighbour.
    let neighbours = "--break local-norm --steps 3 --grad-accum 2";
    let neighbours = failed(
        &lab04(neighbours),
        1,
        "stage 1 trained something else; stage 3 trained something else; ranks",
    );
    has(
        &neighbours,
        &["stage 2 trains what stage 0 trains", "stage 3 trains what stage 2 trains"],
    );
    let padding = failed(&lab04("--break padding-on-last"), 1, "padding was taken for parameters");
    has(
        &padding,
        &[
            "     2         1        3         0\n",
            "     3         0        4         7\n",
            "expected 9 elements, found 12 ✗",
        ],
    );
    failed(
        &lab04("--break padding-on-last --ranks 2"),
        2,
        "padding spans ranks only from 3 ranks on",
    );
    let released = lab04("--break used-after-release --steps 2");
    failed(&released, 1, "rank ");
    let says = [
        "parameter wte.weight [65, 32] is sharded among 4 ranks",
        "holds 520 elements: 1560 to 2079",
        "Zero::whole",
    ];
    has(&stderr(&released), &says);
}

#[test]
fn a_batch_that_ranks_cannot_share_is_refused_before_work() {
    let mut command = Command::new(program("lab04"));
    let refused = command.args(["--global-batch", "3", "--grad-accum", "2"]).output().unwrap();
    failed(
        &refused,
        2,
        "--global-batch 3 cannot be divided evenly among 4 ranks x 2 micro-steps",
    );
    has(&stderr(&refused), &["help: give a multiple of 8, such as 8;"]);
    let shared = Command::new(program("lab03"))
        .args(["--global-batch", "24", "--dry-run"])
        .output()
        .unwrap();
    has(&succeeded(&shared), &["12 sequences x 2 ranks"]);
}

#[test]
fn flags_that_would_do_nothing_are_refused_before_work() {
    for (flags, says) in [
        ("--eval-only", "unexpected argument '--eval-only'"),
        ("--no-such-flag", "unexpected argument"),
        (
            "--dry-run",
            "the following required arguments were not provided: <--zero <STAGE>|--fsdp <STRATEGY>|--strategy <TEXT>>",
        ),
        (
            "--trace o.json",
            "the following required arguments were not provided: <--zero <STAGE>|--fsdp <STRATEGY>|--strategy <TEXT>>",
        ),
        (
            "--metrics m",
            "the following required arguments were not provided: <--zero <STAGE>|--fsdp <STRATEGY>|--strategy <TEXT>>",
        ),
        (
            "--eval-interval 7",
            "the following required arguments were not provided: <--zero <STAGE>|--fsdp <STRATEGY>|--strategy <TEXT>>",
        ),
        (
            "--prompt x",
            "the following required arguments were not provided: <--zero <STAGE>|--fsdp <STRATEGY>|--strategy <TEXT>>",
        ),
        ("--zero 4", "invalid value '4'"),
        ("--dtype f16", "invalid value 'f16'"),
        (
            "--zero 2 --wrap model",
            "--wrap is for gathered parameters, and stage 2 gathers none",
        ),
        ("--zero 3 --reduce-bucket 9", "--reduce-bucket is not for stage 3"),
        ("--zero 1 --reduce-bucket 0", "invalid value '0' for '--reduce-bucket <"),
        ("--zero 1 --log-interval 0", "invalid value '0' for '--log-interval <"),
        ("--memory-limit 0", "invalid value '0' for '--memory-limit <"),
        ("--memory-limit nan", "invalid value 'nan' for '--memory-limit <"),
        (
            "--tiles 2 --zero 2",
            "--tiles is for gathered parameters, and stage 2 gathers none",
        ),
        ("--break local-norm --ranks 1", "--break needs ranks that can differ"),
        ("--break local-norm --clip 0", "--break local-norm clips, and --clip is 0"),
        (
            "--break local-norm --zero 0",
            "the argument '--break <BROKEN>' cannot be used with: --zero <STAGE>",
        ),
        (
            "--break local-norm --memory-limit 0.2",
            "--break local-norm shows beside stage 0",
        ),
        ("--ranks 32", "27328 parameters in 15 tensors are too few for 32 ranks"),
    ] {
        failed(&lab04(flags), 2, says);
    }
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
    let evaluations = |lab: &str, flags: &str, says: &[&str]| {
        let text = succeeded(&tiny(dir.path(), lab, flags));
        has(&text, says);
        has(
            &text,
            &[
                "bitwise equal ✓",
                "step=6 loss=",
                "step=6 train_loss=",
                "all ranks hold the same model",
            ],
        );
        // The last one has the hash of all parameters.
        let lines = text
            .lines()
            .filter(|line| line.contains("val_loss=") || line.contains("hold the same"));
        let lines = lines.map(String::from).collect::<Vec<_>>();
        assert_eq!(lines.len(), 4, "{text}");
        lines
    };
    let ddp = evaluations(program("lab03"), "", &["bytes per rank per step = 2(n-1)/n x 4 x "]);
    let sent = [" gathered", " for the norm"];
    let zero = evaluations(
        program("lab04"),
        "--zero 0 --dtype f32",
        &["sharded  nothing (stage 0, DDP)", "stage 0 · DDP"],
    );
    assert_eq!(zero, ddp);
    for (stage, sharded) in [
        (1, "the optimizer state (stage 1)"),
        (2, "the optimizer state and gradients (stage 2)"),
        (3, "the optimizer state, gradients and parameters (stage 3, FSDP)"),
    ] {
        let says = [&sent[..], &[sharded, "  parameters  "]].concat();
        assert_eq!(
            evaluations(program("lab04"), &format!("--zero {stage}"), &says),
            ddp,
            "stage {stage}"
        );
    }
    let bf16 = evaluations(
        program("lab04"),
        "--zero 0 --dtype bf16",
        &["stores   bf16: 2 bytes per parameter"],
    );
    assert_ne!(bf16, ddp);
    for stage in [
        "1 --reduce-bucket 500",
        "2",
        "3 --persistence-threshold 0 --prefetch-bucket 0 --wrap parameters --offload .",
    ] {
        assert_eq!(
            evaluations(program("lab04"), &format!("--dtype bf16 --zero {stage}"), &sent),
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
    has(&trained, &["saved o/model.safetensors", "[2] step=2 ", "t.json: open it"]);
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

#[test]
fn a_dry_run_of_one_stage_is_arithmetic() {
    let mut command = Command::new(program("lab04"));
    command.env_remove("SHARDLAB_CORPUS").env("NO_COLOR", "");
    let flags = "--dry-run --preset wordplay --ranks 4 --zero 2 --dtype bf16";
    let text = succeeded(&command.args(flags.split_whitespace()).output().unwrap());
    for row in [
        ["parameters", "172 MB", "2 bytes each"],
        ["gradients", "42.9 MB", "2 bytes each, sharded among 4"],
        ["optimizer", "257 MB", "two moments and the master, 12 bytes per parameter,"],
        ["gathered", "343 MB", "all parameters, to begin with and to evaluate"],
    ] {
        assert!(
            text.lines().any(|line| row.iter().all(|part| line.contains(part))),
            "{row:?} is missing in\n{text}"
        );
    }
}

/// NaN is not equal to NaN, but neither is it a stage that trained something else.
#[test]
fn divergence_is_said_to_be_divergence() {
    for flags in ["--lr 1e30 --steps 20", "--lr 1e30 --steps 20 --zero 3"] {
        let diverged = lab04(flags);
        assert_eq!(diverged.status.code(), Some(1));
        let error = stderr(&diverged);
        has(
            &error,
            &[
                "training has diverged",
                "help: lower --lr (it is 1",
                "or lengthen --warmup (it is 2)",
            ],
        );
        assert!(!error.contains("--clip") && !error.contains("something else"), "{error}");
    }
}
