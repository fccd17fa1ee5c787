//! What takes the place of `mpi.rs` in a build without the feature `mpi`. No process is connected
//! to others, so no [`MpiWorld`] exists, and only [`connect`] is ever called.

use super::launcher::Launched;
use super::settings::CommandLine;
use crate::comm::{Comm, Options};
use crate::error::BadInput;
use anyhow::Result;
use std::time::Duration;

/// A job's processes. It has no value.
pub(super) enum MpiWorld {}

/// None for the only process of its job. Several processes cannot connect, and must not train
/// separate models.
pub(super) fn connect(
    launched: &Launched,
    _settings: &CommandLine,
    _deadline: Duration,
) -> Result<Option<&'static MpiWorld>, BadInput> {
    if launched.size == Some(1) {
        return Ok(None);
    }
    Err(launched.unconnected(
        "this build cannot connect them",
        "build it with MPI:  CARGO_TARGET_DIR=target-mpi cargo build --release --features mpi\n      \
         or start it without a launcher: ranks are then threads of one process",
    ))
}

pub(super) fn different_settings(world: &MpiWorld) -> Vec<CommandLine> {
    match *world {}
}

pub(super) fn ranks(world: &MpiWorld, _given: Option<usize>) -> Result<usize, BadInput> {
    match *world {}
}

pub(super) fn ranks_here(world: &MpiWorld) -> usize {
    match *world {}
}

pub(super) fn run<T: Send>(
    world: &MpiWorld,
    _ranks: usize,
    _options: &Options,
    _body: impl FnOnce(Comm) -> Result<T> + Send,
) -> Result<T> {
    match *world {}
}

pub(super) fn fail(world: &MpiWorld, _error: &anyhow::Error) -> ! {
    match *world {}
}

pub(super) fn end(world: &MpiWorld, _code: u8) {
    match *world {}
}
