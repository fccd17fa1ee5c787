//! Weights on disk.

mod weights;

pub use weights::{Description, FILE, describe, ensure_writable, load, save};
