//! This machine: its memory and cores, how fast it is, who else works on it, and where ranks are.
//!
//! Reading order: this file, `footprint.rs` (the memory that a run needs), `peaks.rs` (how fast the
//! machine is), `resources.rs` (what a run has used), `other_work.rs` (whether other programs work
//! on it), `one_by_one.rs` (what each rank measures while the others wait), `place.rs` (the node of
//! each rank), `neighbours.rs` (whether a mesh's groups lie inside one).

mod footprint;
pub mod neighbours;
mod one_by_one;
mod other_work;
mod peaks;
pub mod place;
mod resources;

pub use footprint::{Footprint, does_not_fit};
pub use one_by_one::one_by_one;
pub use other_work::OtherWork;
pub use peaks::{Peaks, allocate_matmul_room, matmul_peak};
pub use resources::Resources;

use crate::show::bytes_decimal;
use shardlab::launch;

/// The process's own limit on memory, for an error about memory. Empty if there is none.
pub fn memory_limit_in_words() -> String {
    let words =
        |limit| format!(" (`ulimit -v` limits this process to {})", bytes_decimal(limit as f64));
    launch::memory_limit().map(words).unwrap_or_default()
}

/// Bytes of the machine's memory that this process has: its ranks' buffers and all other memory,
/// also freed memory that is kept for reuse. None if the system does not provide the number.
pub fn resident_memory() -> Option<u64> {
    launch::process_memory().map(|(_, resident)| resident)
}

/// Why the times of `here` ranks on this machine say nothing about as many devices, if they say
/// nothing: there are fewer `cores`.
pub fn turns(here: usize, cores: usize) -> Option<String> {
    (here > cores).then(|| format!("{here} ranks take turns on {cores} cores"))
}
