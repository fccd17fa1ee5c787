//! lab09 as its users start it: what is on the screen, what is refused, and exit codes.

use crate::suite::program::{failed, fits, has, is_narrow, program, stderr, stdout, succeeded};
use shardlab::checkpoint::Claim;
use shardlab::comm::Comm;
use std::process::{Command, Output};

const SMALL: &str = "--heads 4 --embd 16 --block 8 --steps 4 --save-after 2";

fn lab09(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("lab09"));
    command
        .current_dir(dir.path())
        .env("NO_COLOR", "")
        .env_remove("SHARDLAB_CORPUS")
        .env("RUST_BACKTRACE", "0");
    command.args(flags.split_whitespace()).output().expect("lab09 starts")
}

#[test]
fn any_ranks_resume() {
    let text = succeeded(&lab09("--steps 4 --save-after 2"));
    fits(&text, 45);
    has(
        &text,
        &[
            "dp=4,zero=1 saves",
            "0: the same bits",
            "6 of 6 jobs",
            "104,832 = 104,832",
            "Takeaway",
        ],
    );
    let text = succeeded(&lab09(&format!(
        "{SMALL} --from tp=2,pp=2 --to dp=5 dp=2,tp=2 --ascii --slices wpe.weight"
    )));
    assert!(text.is_ascii());
    has(&text, &["tp=2,pp=2 saves", "2 of 2 jobs", "of wpe.weight [8, 16]"]);
}

#[test]
fn the_failure_of_the_source_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeeded(&lab09(&format!("--padding --out {}", dir.path().display())));
    // The source's shell reads the step in Megatron-LM's file, and makes the folder's name of it.
    let saves = dir.path().join("padding/ws768_stage1_last");
    let step = std::fs::read_to_string(saves.join("latest_checkpointed_iteration.txt")).unwrap();
    assert_eq!(step, "95600");
    assert!(saves.join(format!("global_step{step}")).is_dir());
    fits(&text, 48);
    let shown = [
        "-676: narrow() fails",
        "-2: narrow() fails",
        "767 of 768",
        "768 of 768",
        "195 of 195",
        "48 of 48",
    ];
    has(&text, &shown);
    has(
        &text,
        &[
            "exp_avg: 348 - 1,024 = -676 ✓",
            "195 and 9 ✓",
            "padding 0 ✓",
            "1,170 of 1,170 ✓",
        ],
    );
    assert!(!text.contains('✗'), "{text}");
    let text = succeeded(&lab09("--plot"));
    is_narrow(&text);
    has(
        &text,
        &[
            "419 of 1,024 numbers of ranks fail, the first is 376. 48 does not, 144 does",
            "866 of 1,024",
        ],
    );
}

#[test]
fn what_is_broken_is_noticed() {
    let output = lab09("--break strip");
    let expected = "error: rank 767 of 768: narrow(): length must be non-negative: exp_avg: 348 - 1,024 = -676";
    assert!(
        output.status.code() == Some(1) && stderr(&output).contains(expected),
        "{}",
        stderr(&output)
    );
    // What is loaded is right, so only the losses show that the data are not.
    let output = lab09(&format!("{SMALL} --break first-data"));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), &["bitwise ……………………… 6 of 6 jobs ✓", "✗"]);
    assert!(stderr(&output).contains("error: the losses differ"), "{}", stderr(&output));
}

/// A run removes what an earlier one left in its folder, and nothing else.
#[test]
fn only_an_earlier_runs_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let lab09 = || {
        let mut command = Command::new(program("lab09"));
        command
            .current_dir(dir.path())
            .env("NO_COLOR", "")
            .env_remove("SHARDLAB_CORPUS");
        command
            .args(SMALL.split_whitespace())
            .args(["--to", "dp=1", "--out", "."])
            .output()
            .expect("lab09 starts")
    };
    let mine = dir.path().join("checkpoints");
    std::fs::create_dir_all(mine.join("thesis")).unwrap();
    std::fs::write(mine.join("thesis/precious"), "x").unwrap();
    succeeded(&lab09());
    succeeded(&lab09());
    assert!(mine.join("thesis/precious").exists() && !mine.join("writer.lock").exists());
    std::fs::write(mine.join("job-1/precious"), "x").unwrap();
    let refused = lab09();
    failed(
        &refused,
        2,
        "./checkpoints/job-1 is in the way, and was not written by this lab",
    );
    assert!(mine.join("job-1/precious").exists() && mine.join("job-0").exists());
    // Another lab09 is at work here.
    std::fs::remove_file(mine.join("job-1/precious")).unwrap();
    let claim = Claim::take(&Comm::alone(), &mine).unwrap();
    failed(
        &lab09(),
        2,
        &format!("./checkpoints is being written by process {} on host ", std::process::id()),
    );
    assert!(mine.join("job-0").exists());
    drop(claim);
}

#[test]
fn bad_jobs_are_refused_before_anything_runs() {
    for (flags, what) in [
        ("--from dp=7", "60 sequences per step cannot be divided by 7 data ranks"),
        ("--to pp=3", "3 stages cannot share 2 layers"),
        ("--to tp=3", "4 heads cannot be divided evenly among 3 tensor ranks"),
        ("--from pp=2,dp=2,zero=3", "give zero=0 or zero=1 with pp"),
        ("--to nope", "there is no \"nope\" in a strategy"),
        ("--slices nothing", "the model has no nothing help: choose of"),
        ("--save-after 20", "nothing would be saved or resumed"),
    ] {
        let output = lab09(flags);
        assert_eq!(output.status.code(), Some(2), "{flags}");
        assert!(
            stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ").contains(what),
            "{flags}: {}",
            stderr(&output)
        );
    }
}
