//! The smallest training job: a stack of linear layers, its journal, and a profile of all its
//! ranks.
//!
//! Reading order: `mlp.rs` (the run), `iterations.rs` and `profile.rs` (its screens).

mod iterations;
mod mlp;
mod profile;

pub use iterations::{IterRecord, Iterations};
pub use kit;
pub use mlp::{MlpConfig, MlpFlags};
pub use profile::{Profile, Stamps};
