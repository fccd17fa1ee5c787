//! lab09 as its users start it: the files that it removes. `tests/screens/lab09.txt` has what it
//! shows.

use crate::suite::program::{failed, lab_in, passes, succeeded};
use shardlab::checkpoint::Claim;
use shardlab::comm::Comm;

const SMALL: &str = "--heads 4 --embd 16 --block 8 --steps 4 --save-after 2";

/// Matrices that had one owner are resumed with others, cut by tensor ranks, and in stages.
#[test]
fn muons_state_is_saved_and_resharded() {
    passes(
        "lab09",
        &[
            &format!("{SMALL} --optimizer muon"),
            &format!("{SMALL} --optimizer muon --from tp=2 --to dp=3,zero=3"),
        ],
    );
}

/// A run removes what an earlier one left in its folder, and nothing else.
#[test]
fn only_an_earlier_runs_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let lab09 = || lab_in(dir.path(), "lab09", &format!("{SMALL} --to dp=1 --out ."));
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
