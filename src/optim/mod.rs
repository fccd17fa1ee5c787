//! What becomes of gradients: their global norm, and the optimizer's step. On flat buffers, whole or a rank's share of them.
//!
//! Reading order: `norm.rs`, `adamw.rs`.

mod adamw;
mod norm;

pub use adamw::{AdamW, AdamWConfig, Piece};
pub(crate) use adamw::{Moments, Rule, update_pieces};
pub use norm::{clip_scale, global_norm, sharded_norm, stored_norm};
