//! Weights on disk.

mod weights;

pub use weights::{Description, FILE, describe, load, save};
