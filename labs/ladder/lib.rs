//! The ladder: one small model, trained on several ranks in eight ways, each by a program that the
//! reader writes.
//!
//! A [`Rank`] is all that such a program has: what the rank computes, and what it sends.
//! [`one_rank::train`] is the program for one rank. It is given, and every rung begins as its copy.
//! [`run()`] runs a program on real ranks, and measures what each rank holds, sends and computes.
//!
//! Reading order: `one_rank.rs` (the program that is given), `rank.rs` and `group.rs` (its
//! interface), `model.rs`, `text.rs` and `adam.rs` (what is trained, on what, by what), `job.rs`
//! and `run.rs` (programs on ranks), `log.rs` (what they do, noted), `passes.rs` and `held.rs`
//! (what a rank has computed, and the bytes that it holds), `clock.rs` (the time of a step on
//! slower devices and a slower link), `rungs.rs` (the eight rungs), `best.rs` (what no program can
//! beat), `judge/` (what the checks of all rungs share), `picture.rs`.

// A program goes through its layers by their numbers, as the ranks' calls do.
#![allow(clippy::needless_range_loop)]

// Our solutions are modules of this crate, too, and they name it as a reader's file does.
extern crate self as ladder;

mod adam;
mod best;
mod clock;
mod group;
mod held;
mod job;
pub mod judge;
mod log;
mod model;
pub mod one_rank;
mod passes;
pub mod picture;
mod rank;
mod run;
mod rungs;
mod text;

pub use adam::Adam;
pub use best::best;
pub use clock::Doing;
pub use group::{Group, Pending};
pub use job::Job;
pub use log::Update;
pub use model::{LAYERS, UNITS, WIDTH, numel, unit};
pub use passes::{Pass, most_in_flight, passes};
pub use rank::Rank;
pub use run::{Run, Score, Trained, run};
pub use rungs::{RUNGS, Returns, Rung};

/// What the programs of a rung return.
pub use shardlab::comm::{Reduce, Result};
