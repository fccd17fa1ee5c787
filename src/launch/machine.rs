//! What this machine has.

/// Bytes that this process may still take: free memory, or what is left of a container's share of it. None where the
/// system does not say.
pub fn free_memory() -> Option<u64> {
    let memory = sysinfo::RefreshKind::nothing().with_memory(sysinfo::MemoryRefreshKind::nothing().with_ram());
    let system = sysinfo::System::new_with_specifics(memory).ok()?;
    let container = system.cgroup_limits().map(|limits| limits.free_memory);
    let free = system.available_memory();
    Some(container.map_or(free, |container| container.min(free))).filter(|&bytes| bytes > 0)
}

/// Bytes that this process has of the machine's memory: its ranks' buffers, and all else, also what has been freed and is kept
/// for later. None where the system does not say.
pub fn resident_memory() -> Option<u64> {
    let process = sysinfo::get_current_pid().ok()?;
    let only_memory = sysinfo::ProcessRefreshKind::nothing().with_memory();
    let mut system = sysinfo::System::new().ok()?;
    system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::Some(&[process]), false, only_memory);
    system.process(process).map(|process| process.memory())
}

/// The cores that ranks of this process can run on at the same time.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// This node's name.
pub fn host_name() -> String {
    sysinfo::System::host_name().ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "localhost".into())
}
