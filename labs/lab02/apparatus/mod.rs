//! A stack of linear layers, its training, its journal, and a profile of all its ranks.
//!
//! Reading order: `mlp.rs` (the run's settings), `training.rs` (its steps, timed), `iterations.rs`
//! and `profile.rs` with `tree.rs` (its screens), `legend.rs`, `dry_run.rs`.

mod dry_run;
mod iterations;
mod legend;
mod mlp;
mod profile;
pub mod training;
pub mod tree;

pub use dry_run::dry_run;
pub use iterations::{IterRecord, Iterations};
pub use legend::legend;
pub use mlp::MlpConfig;
pub use profile::{Profile, Stamps};
