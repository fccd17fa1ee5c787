//! The smallest training job: a stack of linear layers, its journal, and where the time of all its ranks went.
//!
//! Reading order: `mlp.rs` (what a run is), `iterations.rs` and `profile.rs` (what it prints).

mod iterations;
mod mlp;
mod profile;

pub use iterations::{IterRecord, Iterations};
pub use mlp::{MlpConfig, MlpFlags, MlpReplica};
pub use profile::{Profile, Stamps};
