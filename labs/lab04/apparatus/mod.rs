//! ZeRO's stages side by side: what each rank holds and sends, and what that costs on a real
//! network.
//!
//! Reading order:
//!
//! - a run: `job.rs`, `lab.rs` (what its ranks share), `limit.rs` (the stages that a rank has room
//!   for), `stages.rs` (their names, and a table with a column for each),
//!   `introduce.rs` (the setup)
//! - one stage: `training.rs`, `measured.rs` (what it held and sent), `holdings.rs` (drawn)
//! - computed steps: `ring.rs` (a collective), `computed.rs` (a step), `timeline.rs` (drawn),
//!   `polaris.rs` (on a real network)
//! - all stages: `owners.rs` (Muon's matrices), `comparison.rs`, `checks.rs`
//! - groups that shard: `tree.rs` (one rank that adds as they do), `grouped.rs` (what they held and
//!   sent), `groups_shown.rs`, `groups.rs` (all of it)
//! - `padding.rs` (padding, recorded on the wrong rank)

pub mod checks;
mod comparison;
mod computed;
mod grouped;
mod groups;
mod groups_shown;
mod holdings;
mod introduce;
mod job;
mod lab;
pub mod limit;
mod measured;
mod owners;
mod padding;
mod polaris;
mod ring;
mod stages;
mod timeline;
pub mod training;
mod tree;

pub use comparison::{compared, show};
pub use groups::compare_groups;
pub use groups_shown::introduce_groups;
pub use introduce::introduce;
pub use job::Job;
pub use lab::Lab;
pub use measured::Measured;
pub use padding::{padding_on_last, restored};
pub use stages::title;
pub use timeline::{computed_step, timeline};
