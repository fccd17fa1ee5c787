//! lab13 as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{failed, has, lab, passes, stderr, stdout, succeeded};

/// A model and a training that take a moment.
const SMALL: &str = "--embd 32 --steps 5";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--steps 40",
        "--ranks 1",
        "--ranks 2 --experts 4 --top 1",
        "--ranks 3 --ascii",
        "--ranks 2 --experts 2 --top 2 --z-loss 0.001",
        "--ranks 4 --dropout 0.1 --grad-accum 2 --aux-loss 0.1",
        "--ranks 2 --aux-scope model",
        "--ranks 2 --dtype bf16",
        "--ranks 2 --reduce-dtype bf16",
        "--bias --scores sigmoid --groups 4 --routed-scaling 2.5 --shared 1",
        "--ranks 2 --bias --grad-accum 2 --dense-layers 1",
        "--ranks 2 --capacity 1.25",
        "--ranks 2 --capacity 0.5 --drop last",
    ] {
        passes("lab13", &[&format!("{SMALL} {flags}").replace("--steps 5 --steps", "--steps")]);
    }
    let buys = "--show buys --ranks 2 --layers 1 --embd 16 --steps 3 --seeds 2";
    passes("lab13", &["--show bytes --ascii", "--dry-run", buys]);
}

/// Experts among the ranks of other axes: losses, norms, balancing losses and bytes.
#[test]
fn meshes_train_what_one_rank_trains() {
    for strategy in [
        "dp=2,ep=2",
        "dp=2",
        "dp=2,tp=2,ep=2,zero=2",
        "dp=2,cp=2,ep=4,zero=3",
        "cp=2,ep=2,cp-comm=ring,zero=1",
        "dp=4,ep=2",
        "dp=4,ep=2,zero=1",
        "dp=4,ep=2,zero=3",
        "dp=4,ep=4,zero=2,recompute=full",
        "dp=2,pp=2,ep=2,m=2",
        "dp=2,pp=2,ep=2,m=2,zero=1,recompute=full",
        "dp=2,tp=2,cp=2,ep=4,zero=1",
        "dp=2,tp=2,ep=2,zero=3 --bias",
        "dp=2,pp=2,ep=2,m=2 --bias --scores sigmoid --shared 1",
        "dp=2,tp=2,ep=2 --capacity 1",
    ] {
        passes("lab13", &[&format!("{SMALL} --strategy {strategy}")]);
    }
}

/// Each mistake trains on, and exactly these checks see it.
#[test]
fn mistakes_look_plausible_and_are_noticed() {
    let checks = [
        "the lesson's mixture",
        "both losses",
        "every gradient",
        "the norm",
        "bytes",
        "each copy",
        "a resumed job",
        "5 losses",
    ];
    for (mistake, noticed) in [
        ("average-all", &["every gradient", "the norm"][..]),
        ("norm-without-experts", &["the norm", "bytes"]),
        ("router-parts", &["every gradient", "the norm", "5 losses"]),
        ("counted-twice", &["each copy"]),
        ("wrong-unpermute", &["both losses", "every gradient", "the norm", "5 losses"]),
        ("no-balance", &[]),
        ("biased-weights", &["both losses", "every gradient", "the norm", "5 losses"]),
        ("bias-per-micro-batch", &["5 losses"]),
        ("one-ranks-experts", &["a resumed job"]),
    ] {
        // Routers that nothing keeps even collapse later.
        let steps = if noticed.is_empty() { "" } else { "--steps 5" };
        let output = lab("lab13", &format!("{steps} --break {mistake}"));
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        let fails = |check: &str| {
            let at = lines
                .iter()
                .position(|line| line.starts_with("  check") && line.contains(check));
            let at = at.unwrap_or_else(|| panic!("{check} is missing in\n{text}"));
            // A long claim has its result on the next line.
            let marked = lines[at..].iter().find(|line| line.ends_with(['✓', '✗']));
            marked.is_some_and(|line| line.ends_with('✗'))
        };
        for check in checks {
            assert_eq!(fails(check), noticed.contains(&check), "{mistake}: {check}\n{text}");
        }
        if mistake == "no-balance" {
            assert!(fails("at the end no expert"), "{text}");
            has(&stderr(&output), &["an expert gets"]);
        }
        if mistake == "bias-per-micro-batch" {
            assert!(fails("biases after 5 steps are one rank's"), "{text}");
        }
        if mistake == "average-all" {
            let error = stderr(&output);
            has(&error, &["gradients differ from one rank's, most that of blocks.", ".experts."]);
        }
        assert_eq!(output.status.code(), Some(1), "{mistake}");
    }
}

/// A rank that leaves out an exchange, or brings another length, is named: nothing hangs.
#[test]
fn exchanges_that_do_not_meet_are_named_at_once() {
    let output = lab("lab13", "--break skip-empty");
    failed(&output, 1, "deadlock: all ranks wait for each other");
    has(&stderr(&output), &["rank 0  waits in all_gather \"combine\" in group experts"]);
    has(&stderr(&output), &["rank 3  waits in all_reduce \"load\" in group data"]);
    let output = lab("lab13", "--break unequal-buffers");
    failed(&output, 1, "the ranks are in different calls: all_to_all \"dispatch, padded\"");
}

/// Each rank's own f is a loss of its own.
#[test]
fn a_load_that_each_rank_counts_for_itself_is_noticed() {
    let output = lab("lab13", "--ranks 2 --steps 5 --aux-over-ranks false");
    let text = failed(&output, 1, "the balancing loss is not one rank's");
    assert_eq!(text.lines().filter(|line| line.ends_with('✗')).count(), 4, "{text}");
}

/// The verdict comes first, whatever becomes of the file.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_does_not_take_the_verdicts_place() {
    let output = lab("lab13", &format!("{SMALL} --ranks 2 --metrics /dev/full"));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), &["dp=2,ep=2,zero=1: 5 losses within"]);
    has(&stderr(&output), &["cannot write to /dev/full", "help: free some space there"]);
}

#[test]
fn what_ranks_cannot_share_is_refused() {
    for (flags, says) in [
        ("--experts 8 --ranks 3", "--experts 8 cannot be divided evenly among 3 ranks"),
        ("--top 9", "--top 9 is more than there are experts: 8"),
        ("--break average-all --ranks 1", "--break needs ranks that can differ"),
        ("--break skip-empty --top 7", "with --top 7 every rank's experts get tokens"),
        ("--break wrong-unpermute --experts 4", "with one expert on each rank"),
        ("--strategy dp=3,ep=2", "2 expert ranks cannot be found among 3 data ranks"),
        ("--aux-loss=-1", "give 0 or more"),
        ("--groups 3", "--groups 3 cannot divide 8 experts"),
        ("--groups 4 --top-groups 5", "--top-groups 5 is more than there are: 4"),
        (
            "--groups 8 --top-groups 1",
            "--top 2 is more than a token's groups have: 1 experts",
        ),
        ("--capacity 0", "more than 0"),
        ("--dense-layers 2", "dense"),
        ("--capacity 1 --break average-all", "--break"),
        ("--show buys --experts 8", "--experts"),
    ] {
        let output = lab("lab13", flags);
        assert_eq!(output.status.code(), Some(2), "{flags}");
        has(&stderr(&output), &[says]);
    }
}

#[test]
fn the_screen_is_45_lines() {
    for flags in ["", "--bias"] {
        crate::suite::program::fits(&succeeded(&lab("lab13", flags)), 45);
    }
}
