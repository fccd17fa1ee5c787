//! The transport between processes of an MPI job. All of MPI in this room is in this folder, and
//! the other files read without it.
//!
//! Reading order: `processes.rs` (the transport, which lists its own folder). It uses `header.rs`
//! (a call in bytes, for the other processes), `board.rs` (what processes have reported to each
//! other) and `traffic.rs` (the bytes that a call sends). These three call no MPI library, so tests
//! need none for them.

mod board;
mod header;
#[cfg(feature = "mpi")]
pub(crate) mod processes;
pub(in crate::comm) mod traffic;
