//! The world of a run's ranks: threads of this process, or processes of an MPI job.

use super::launcher::{launched, unproven, variable};
use super::machine::free_for;
use super::{MAX_RANKS, mpi, settings};
use crate::error::BadInput;
use crate::notice::complain;
use crate::simd;
use std::sync::Once;

/// The origin of a run's ranks.
pub(super) enum World {
    /// This process starts its ranks as threads.
    Threads,
    /// A launcher has started the ranks, and this process is one of them.
    Mpi(&'static mpi::MpiWorld),
}

/// Finds the world in the environment, and connects to MPI if a launcher is there.
pub(super) fn world() -> Result<World, BadInput> {
    match launched(variable) {
        None => Ok(World::Threads),
        Some(launched) if !launched.connects => Err(launched.unconnected(
            "nothing connects them here: each would train a model of its own",
            &format!(
                "start the program itself: ranks are then threads of one process (`ranks` {})",
                launched.size.unwrap_or(2)
            ),
        )),
        Some(launched) => {
            let world = mpi::connect(&launched, &settings::settings(), settings::deadline())?;
            Ok(world.map_or(World::Threads, World::Mpi))
        }
    }
}

/// The world, if all of its ranks were started with the same settings.
pub(super) fn alike() -> Result<World, BadInput> {
    let world = world()?;
    note_unproven();
    if let World::Mpi(world) = &world {
        let mut different = mpi::different_settings(world);
        if settings::only_some_have_tiles(&mut different) {
            simd::without_tiles();
        }
        settings::ensure_alike(&different)?;
    }
    Ok(world)
}

/// Says that this process trains alone where PyTorch's variables name more. This is no error,
/// because notebooks set these variables, and a shell in them inherits them.
fn note_unproven() {
    static ONCE: Once = Once::new();
    if let Some((rank, size)) = unproven(variable) {
        let note = format!(
            "note: RANK={rank} and WORLD_SIZE={size} are set, as PyTorch's launchers set them, \
             and nothing connects {size} processes here: if a launcher started them, each \
             trains a model of its own\nhelp: start one process, whose ranks are threads \
             (`ranks` {size}); in a shell that only inherited the variables:  unset RANK WORLD_SIZE"
        );
        ONCE.call_once(|| complain(&note));
    }
}

/// The number of ranks: `given` or `default` threads. Under a launcher it is the job's size, and
/// `given` must be the same.
///
/// # Errors
/// [`BadInput`] if `given` is out of range or contradicts the launcher, if this build cannot
/// connect to the launcher, or if ranks were started with different settings.
pub fn ranks(given: Option<usize>, default: usize) -> Result<usize, BadInput> {
    match alike()? {
        World::Threads => {
            let ranks = given.unwrap_or(default);
            if (1..=MAX_RANKS).contains(&ranks) {
                return Ok(ranks);
            }
            let help = format!("ranks are threads of this process here: give 1 to {MAX_RANKS}");
            Err(BadInput::new(format!("`ranks` {ranks} is out of range"), help))
        }
        World::Mpi(world) => mpi::ranks(world, given),
    }
}

/// How many of a run's `ranks` ranks share this machine's memory.
pub fn ranks_here(ranks: usize) -> usize {
    match world() {
        Ok(World::Mpi(world)) => mpi::ranks_here(world),
        _ => ranks,
    }
}

/// Bytes of memory that `ranks` ranks on this machine may still take: the least of free memory,
/// what a container has left, and what the limits of their processes leave. None if the system does
/// not provide these numbers.
pub fn free_memory(ranks: usize) -> Option<u64> {
    if is_mpi() {
        // Each rank is a process, with its own limit.
        free_for(ranks, 1)
    } else {
        free_for(1, ranks)
    }
}

/// Whether ranks are MPI processes.
pub fn is_mpi() -> bool {
    !matches!(world(), Ok(World::Threads) | Err(_))
}

/// Whether this process prints for the run before ranks exist: it is the only process, or the
/// launcher's first.
pub fn is_first_process() -> bool {
    launched(variable).is_none_or(|launched| launched.rank == 0)
}

/// Programs by which launchers start processes, as Linux names them: at most 15 letters.
const STARTERS: &str = "slurmstepd flux-shell mpirun mpiexec mpiexec.hydra mpispawn orterun orted \
                        prterun prted hydra_pmi_proxy palsd jsmd";

/// Whether a launcher itself started this process, as far as Linux says. Then there is a first
/// process, which says why it stops, and this one need not. A shell that inherited a rank's
/// variables is no launcher.
pub(super) fn first_process_speaks() -> bool {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let status = read("/proc/self/status");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or_default();
    let name = read(&format!("/proc/{}/comm", parent.trim()));
    STARTERS.split(' ').any(|starter| starter == name.trim())
}
