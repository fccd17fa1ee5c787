//! What labs say of this machine: memory and cores.

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
    let process = sysinfo::get_current_pid().ok()?;
    let only_memory = sysinfo::ProcessRefreshKind::nothing().with_memory();
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_processes_specifics(
        sysinfo::ProcessesToUpdate::Some(&[process]),
        false,
        only_memory,
    );
    system.process(process).map(sysinfo::Process::memory)
}

/// Why the times of `here` ranks on this machine say nothing about as many devices, if they say
/// nothing: there are fewer `cores`.
pub fn turns(here: usize, cores: usize) -> Option<String> {
    (here > cores).then(|| format!("{here} ranks take turns on {cores} cores"))
}
