//! Collectives taken apart: each algorithm as a list of rounds, made of sends and receives.
//!
//! What is on the wire when ranks call a collective? An algorithm lists for each rank, round by
//! round, which elements the rank sends to which rank, and which elements it receives from which
//! rank. The same list has four uses. [`run`](run::run) executes it on any transport, lab01 draws
//! it, tests compare it with formulas, and the simulator ([`plan::network`](crate::plan)) computes
//! its time on 100,000 ranks.
//!
//! The table gives costs on the busiest rank. With n ranks, a vector of S bytes, and p the largest
//! power of two up to n:
//!
//! | file | idea | all-reduce costs |
//! |---|---|---|
//! | `flat.rs` | the root exchanges data with each rank itself; naive all-reduce | 2(n-1) rounds of S |
//! | `tree.rs` | every rank that has the data helps to spread it | |
//! | `chain.rs` | from rank to rank, in segments | |
//! | `ring.rs` | every rank passes one part to the right | 2(n-1) rounds of S/n |
//! | `recursive.rs` | partners at distances 1, 2, 4, … | log2 n rounds of S |
//! | `rabenseifner.rs` | halving, then doubling | 2 log2 n rounds of S/2, S/4, … |
//! | `pairwise.rs` | each pair of ranks in turn | |
//!
//! Reading order: `round.rs` (what a round is), `ring.rs`, `run.rs` (the executor), then the others
//! in any order. `fold.rs` handles numbers of ranks that are no power of two. `task.rs` names the
//! algorithms and decides what `auto` chooses.

mod chain;
mod flat;
mod fold;
mod pairwise;
mod rabenseifner;
mod recursive;
mod ring;
mod round;
mod run;
mod task;
mod tree;

pub use chain::SEGMENT;
pub use round::{Arrival, Incoming, Outgoing, Round};
pub use run::{all_reduce, divide, run};
pub use task::{Algorithm, Collective, Task};
