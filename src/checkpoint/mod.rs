//! A model's weights, and the whole state of a training, on disk.
//!
//! Reading order: `weights.rs` (whole weights, for a different program to read); `native.rs` (a
//! training's checkpoints), `shard.rs` (one rank's part), `saves.rs` (the folder of all of them),
//! `manifest.rs` (what belongs together, and whether it is undamaged), `files.rs` (writing that
//! survives a kill), `cause.rs` (why it failed), `lock.rs` (one job at a time), `agree.rs` (one
//! rank's error on all ranks); `shape.rs` (shapes that files claim); `universal/` (from N ranks to
//! M).

pub mod agree;
pub mod cause;
pub mod files;
mod lock;
mod manifest;
mod native;
mod saves;
mod shape;
mod shard;
pub mod universal;
mod weights;

pub use lock::Claim;
pub use manifest::{Job, MANIFEST, Settings, rank_file};
pub use native::{Checkpoints, Resume, Resumed, Writing};
pub use shape::numel;
pub use weights::{Description, FILE, describe, ensure_writable, load, save};
