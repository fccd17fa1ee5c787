//! Code that tests share. Most of it is what must hold on every transport, as functions of a
//! `Comm`, which tests call with threads and with MPI processes. `program.rs` is about programs
//! that have run.

#![allow(dead_code, reason = "each test program uses its part of the suite")]

pub mod algorithms;
pub mod bad_steps;
pub mod checkpoints;
pub mod collectives;
pub mod context;
pub mod experts;
pub mod hsdp;
/// The solution of an exercise, which must run unchanged on every transport.
#[path = "../../labs/lab01/solutions/lab01_ring.rs"]
pub mod lab01_ring;
pub mod llama;
pub mod muon;
pub mod parity;
pub mod pipeline;
pub mod program;
pub mod selection;
pub mod tensor;
pub mod trained;
pub mod training;
pub mod universal;
pub mod zero;

pub use labs::lab01::{by_algorithm, formula};
pub use trained::strategy;

/// The file or folder that a variable of the environment names. Tests that need one are ignored;
/// who asks for them anyway gets a failure and no silence.
#[track_caller]
pub fn needed(variable: &str) -> std::path::PathBuf {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    value
        .unwrap_or_else(|| panic!("{variable} is not set, and this test needs it"))
        .into()
}
