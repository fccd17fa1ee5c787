//! Weights on disk. Reading order: `weights.rs`.

mod weights;

pub use weights::{Description, FILE, describe, ensure_writable, load, save};
