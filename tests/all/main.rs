//! All tests that need no process of their own, in one program: each program would link candle once
//! more.
//!
//! `cargo test --test all lab03::` runs one file's.

/// The checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The programs that these tests start, for cargo.
const PROGRAMS: &[&str] = &["--bins"];

#[path = "../suite/mod.rs"]
mod suite;

// labs: written by workbook dev update
mod lab00;
mod lab01;
mod lab02;
mod lab03;
mod lab04;
mod lab05;
mod lab06;
mod lab07;
mod lab08;
mod lab09;
mod lab10;
mod lab11;
mod lab12;
mod lab13;
// end of labs

mod arguments;
mod bad_steps;
mod book;
mod breaks;
mod checkpoints;
mod context;
mod ddp;
mod documents;
mod doors;
mod ds_to_universal;
mod example;
mod experts;
mod experts_golden;
mod extras;
#[cfg(unix)]
mod hostile;
mod jobs;
mod labs;
#[cfg(unix)]
mod launch;
mod llama;
mod loops;
mod pipeline;
mod refusals;
#[cfg(unix)]
mod restart;
mod schedules;
mod screens;
mod seed_pipeline;
mod settings;
/// The rules read them, too.
#[allow(dead_code, reason = "the rules use more of it")]
#[path = "../rules/sources.rs"]
mod sources;
mod strategies;
#[cfg(unix)]
mod terminal;
mod torch_files;
mod traces;
mod trainer;
mod transcript;
mod workbook;
