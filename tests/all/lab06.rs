//! lab06 as its users start it: its checks and exit codes.

use crate::suite::program::passes;

/// A model of 8 layers that takes no time, at its own pace.
const SMALL: &str = "--layers 8 --heads 2 --embd 16 --block 8 --batch 2 --pace 0";

/// Its checks: the pipeline trains what one rank trains, and keeps as many activations as its list
/// says.
#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--schedule gpipe --partition parameters",
        "--schedule interleaved",
        "--schedule interleaved --group 8",
        "--schedule interleaved --stages 3 --group 4 --micro-batches 7",
        "--schedule zero-bubble",
        "--stages 2 --micro-batches 1 --dropout 0.1",
        "--compare --micro-batches 3",
    ] {
        passes("lab06", &[&format!("{SMALL} {flags}")]);
    }
    passes("lab06", &["--bench --layers 4 --heads 2 --embd 16 --block 8"]);
}
