//! Ranks that share sequences beside one rank: what each holds, sends and computes, and that all of
//! them train one model.
//!
//! Reading order: `grid.rs` (who attends to whom, drawn), `packed.rs` (documents in a sequence),
//! `one_rank.rs` (the same on one rank), `measured.rs` (what each exchange takes), `attending.rs`
//! (what an attention holds meanwhile), `work.rs` (who computes how much), `probe.rs` (which
//! outputs one token changes), `checks.rs` (whether it is the same model), `broken.rs` (mistakes;
//! `broken_pass.rs` has those of a pass), `bytes.rs` (which exchange sends least).

mod attending;
mod broken;
mod broken_pass;
mod bytes;
mod checks;
mod grid;
mod measured;
mod one_rank;
mod packed;
mod probe;
mod work;

pub use attending::attending;
pub use broken::Break;
pub use broken_pass::break_pass;
pub use bytes::{ring_beside_ulysses, show_bytes};
pub use checks::{Found, check, check_training};
pub use grid::{Cell, Grid};
pub use measured::{Measured, compared, measure};
pub use one_rank::{OneRank, steady_steps};
pub use packed::Packed;
pub use probe::{Probed, probe};
pub use work::{Load, Work, draw, work};
