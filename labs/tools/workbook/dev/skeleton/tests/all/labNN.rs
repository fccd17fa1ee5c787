//! labNN as its users start it: its checks, its mistakes, exit codes.

use crate::suite::program::{failed, lab, passes};

#[test]
fn its_checks_hold() {
    passes("labNN", &["", "--ranks 1", "--ranks 3 --ascii"]);
}

/// TODO: a test for each mistake of `--break`.
#[test]
fn a_rank_that_brings_nothing_is_noticed() {
    let output = lab("labNN", "--break left-out");
    failed(&output, 1, "a rank's number is missing in the sum");
}
