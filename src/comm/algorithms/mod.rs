//! Collectives taken apart: each algorithm as a list of rounds, made of sends and receives.
//!
//! What is on the wire when ranks call a collective? An algorithm says for each rank, round by round, which elements it sends
//! to whom, and which it receives from whom. The same list is run on any transport ([`run`](run::run)), drawn by lab01, held to formulas
//! by tests, and costed for 100,000 ranks by the simulator ([`plan::network`](crate::plan)).
//!
//! With n ranks, S bytes in the vector, p the largest power of two up to n; on the busiest rank:
//!
//! | file | idea | all-reduce costs |
//! |---|---|---|
//! | `flat.rs` | the root deals with each rank itself; naive all-reduce | 2(n-1) rounds of S |
//! | `tree.rs` | whoever has the data helps to spread it | |
//! | `chain.rs` | from rank to rank, in segments | |
//! | `ring.rs` | everyone passes one part to the right | 2(n-1) rounds of S/n |
//! | `recursive.rs` | partners at distances 1, 2, 4, … | log2 n rounds of S |
//! | `rabenseifner.rs` | halving, then doubling | 2 log2 n rounds of S/2, S/4, … |
//! | `pairwise.rs` | everyone with everyone, in turn | |
//!
//! Reading order: `round.rs` (what a round is), `ring.rs`, `run.rs` (the executor), then the others in any order; `fold.rs` is for
//! numbers of ranks that are no power of two, `task.rs` gives algorithms their names and says what `auto` chooses.

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
pub use run::{all_gather, all_reduce, all_to_all, broadcast, gather, reduce, reduce_scatter, run, scatter};
pub use task::{Algorithm, Collective, Task};
