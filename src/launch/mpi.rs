//! This process as a rank of an MPI job.
//!
//! In a build without the feature `mpi`, `without_mpi.rs` takes this file's place: the same
//! functions, which refuse to connect.

use super::STACK_BYTES;
use super::launcher::Launched;
use super::settings::CommandLine;
pub(super) use crate::comm::transport::mpi::processes::MpiWorld;
use crate::comm::{Comm, Options};
use crate::error::BadInput;
use crate::notice::complain;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Connects this process to the others of its job, the first time. They wait for each other until
/// the `deadline`, and compare their `settings`. None, only without the feature `mpi`: this process
/// is the only one, and its ranks are threads.
pub(super) fn connect(
    launched: &Launched,
    settings: &CommandLine,
    deadline: Duration,
) -> Result<Option<&'static MpiWorld>, BadInput> {
    let settings = serde_json::json!(settings).to_string();
    let world = MpiWorld::start(STACK_BYTES, launched.rank, settings, deadline);
    let world = world.map_err(|error| {
        BadInput::new(
            format!("MPI does not start: {error}"),
            "start the program with the mpirun of the MPI it was built with",
        )
    })?;
    if world.place.size == 1 && launched.size != Some(1) {
        return Err(launched.other_mpi(&world.place.library));
    }
    Ok(Some(world))
}

/// The settings of all ranks, or nothing if all have the same.
pub(super) fn different_settings(world: &MpiWorld) -> Vec<CommandLine> {
    let read = |text: &String| serde_json::from_str(text).unwrap_or_default();
    world.place.different.iter().map(read).collect()
}

/// The job's ranks. `given` is how many the user asked for.
pub(super) fn ranks(world: &MpiWorld, given: Option<usize>) -> Result<usize, BadInput> {
    match given {
        Some(given) if given != world.place.size => Err(BadInput::new(
            format!(
                "`ranks` {given} contradicts the launcher, which started {} processes",
                world.place.size
            ),
            format!(
                "start {given} processes, or leave `ranks` out: each process is a rank, and a strategy needs as many as it names"
            ),
        )),
        _ => Ok(world.place.size),
    }
}

/// The job's ranks on this machine.
pub(super) fn ranks_here(world: &MpiWorld) -> usize {
    world.place.ranks_here
}

/// Runs this process's rank for [`run_with`](super::run_with). `body` may not panic.
pub(super) fn run<T: Send>(
    world: &MpiWorld,
    ranks: usize,
    options: &Options,
    body: impl FnOnce(Comm) -> Result<T> + Send,
) -> Result<T> {
    ensure!(
        ranks == world.place.size,
        "cannot run {ranks} ranks: the launcher started {} processes",
        world.place.size
    );
    if let Some(link) = options.link.or(options.nodes.map(|nodes| nodes.link)) {
        let help = "leave links out: they are for ranks that are threads of one process";
        return Err(BadInput::new(
            format!("ranks are MPI processes, and no link of {link} is between them"),
            help,
        )
        .into());
    }
    let mut result = world.run(options, body);
    if result.is_ok() && !options.no_check {
        result = world.leave().map_err(Into::into).and(result);
    }
    result.map_err(|error| {
        if error.is::<BadInput>() {
            complain(&format!("error: {error:#}"));
            world.abort(2);
        }
        world.fail(&error)
    })
}

/// Ends the job, because this rank has failed.
pub(super) fn fail(world: &MpiWorld, error: &anyhow::Error) -> ! {
    world.fail(error)
}

/// Leaves MPI at the end of the program. The other processes may be waiting for this one. So after
/// an error it aborts the job.
pub(super) fn end(world: &MpiWorld, code: u8) {
    if code == 0 {
        world.finalize()
    } else {
        world.abort(code.into())
    }
}
