//! lab07 as its users start it: any mesh trains what one rank trains.
//! `tests/screens/lab07.txt` has what it shows.

use crate::suite::program::passes;

/// A model of 25,280 parameters if it has 2 layers, for some vocabulary.
const SMALL: &str = "--heads 4 --embd 32 --block 16 --batch 1 --warmup 2 --lr 0.01";

#[test]
fn every_job_passes_the_checks() {
    for flags in [
        "--ranks 1 --tp 1 --pp 1",
        "--ranks 3 --tp 1 --pp 1",
        "--ranks 4 --tp 4 --pp 1 --make-vocab-size-divisible-by 8",
        "--ranks 2 --tp 1 --pp 2 --schedule gpipe --zero 0",
        "--ranks 8 --schedule zero-bubble --zero 0 --micro-batches 3",
        "--ranks 6 --tp 1 --pp 3 --layers 7 --chunks 2 --schedule interleaved --micro-batches 6",
    ] {
        let layers = if flags.contains("--layers") { "" } else { "--layers 2" };
        passes("lab07", &[&format!("{SMALL} {layers} {flags} --steps 6")]);
    }
}
