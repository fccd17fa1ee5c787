//! Ranks that share experts beside one rank: what travels, who waits, and that all of them train
//! one model.
//!
//! Reading order: `job.rs` (a training whose routers are watched), `routed.rs` (what follows from
//! their choices), `one_rank.rs` (the same on one rank), `measured.rs` (one step beside it),
//! `resumed.rs` (a job that ends and goes on), `bytes.rs` (the lesson's bytes beside those of the
//! library), `load.rs` (who gets how much, over the training), `waiting.rs` (the rank that everyone
//! waits for), `checks.rs` (whether it is the same model), `buys.rs` (what mixtures learn),
//! `broken.rs` (mistakes; `broken_layers.rs` has those of layers, `broken_router.rs` of a router,
//! `broken_dispatcher.rs` those on the way to experts and back).

mod broken;
mod broken_dispatcher;
mod broken_layers;
mod broken_router;
pub mod buys;
mod bytes;
mod checks;
mod job;
mod load;
mod measured;
mod one_rank;
mod resumed;
mod routed;
mod waiting;

pub use broken::Break;
pub use bytes::{Sent, gathered, show_bytes, table_of_bytes};
pub use checks::{Found, Trained, check, check_training};
pub use job::{Job, Taken, biases};
pub use load::{dropped, heat};
pub use measured::{Measured, measure};
pub use one_rank::{OneRank, replay};
pub use resumed::resumed;
pub use routed::{Routed, even_copies, even_ranks};
pub use waiting::waiting;
