//! What must hold on every transport: functions of a `Comm`, which tests call with threads and with MPI processes.

#![allow(dead_code, reason = "each test program uses its part of the suite")]

pub mod algorithms;
pub mod collectives;
pub mod parity;
