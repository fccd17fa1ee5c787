//! This machine's memory and name.

use super::STACK_BYTES;

/// Bytes that so many processes on this machine, with so many threads each, may still take: the
/// least of free memory, what a container has left, and what the processes' own limits leave. None
/// if the system does not provide these numbers.
pub(super) fn free_for(processes: usize, threads: usize) -> Option<u64> {
    let left = |limit| {
        left_of(limit, process_memory().map_or(0, |(taken, _)| taken), threads)
            .saturating_mul(processes as u64)
    };
    let left = memory_limit().map(left);
    free_on_machine().into_iter().chain(left).min()
}

fn free_on_machine() -> Option<u64> {
    let memory = sysinfo::RefreshKind::nothing()
        .with_memory(sysinfo::MemoryRefreshKind::nothing().with_ram());
    let system = sysinfo::System::new_with_specifics(memory).ok()?;
    let container = system.cgroup_limits().map(|limits| limits.free_memory);
    let free = system.available_memory();
    Some(container.map_or(free, |container| container.min(free))).filter(|&bytes| bytes > 0)
}

/// This process's limit on its addresses (`ulimit -v`), in bytes. None if there is none.
pub fn memory_limit() -> Option<u64> {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: getrlimit writes one rlimit, and the pointer is to one.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
        Some(limit.rlim_cur).filter(|&bytes| known && bytes != libc::RLIM_INFINITY)
    }
    #[cfg(not(unix))]
    None
}

/// The part of a `limit` on addresses that `ranks` threads can fill with data, in a process that
/// has already taken `taken` bytes. Each thread reserves a stack, and glibc's allocator reserves as
/// much again per thread.
fn left_of(limit: u64, taken: u64, ranks: usize) -> u64 {
    let reserved = (ranks as u64).saturating_mul(2 * STACK_BYTES as u64);
    limit.saturating_sub(taken).saturating_sub(reserved)
}

/// Bytes of addresses that this process has reserved, and bytes of the machine's memory that it
/// has. None if the system does not provide the numbers.
pub fn process_memory() -> Option<(u64, u64)> {
    let process = sysinfo::get_current_pid().ok()?;
    let only_memory = sysinfo::ProcessRefreshKind::nothing().with_memory();
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_processes_specifics(
        sysinfo::ProcessesToUpdate::Some(&[process]),
        false,
        only_memory,
    );
    system
        .process(process)
        .map(|process| (process.virtual_memory(), process.memory()))
}

/// This process's number. A page of a browser has none.
pub fn process_id() -> u32 {
    if cfg!(target_family = "wasm") {
        1
    } else {
        std::process::id()
    }
}

/// This node's name.
pub fn host_name() -> String {
    sysinfo::System::host_name()
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_and_what_is_taken_are_no_room_for_data() {
        let gib = 1 << 30;
        assert_eq!(left_of(4 * gib, gib, 2), 3 * gib - 4 * STACK_BYTES as u64);
        assert_eq!(left_of(gib, 0, 100), 0);
        assert_eq!(left_of(u64::MAX, 0, usize::MAX), 0);
    }
}
