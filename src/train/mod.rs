//! Training: the optimizer, the learning rate, the loop's parts.

mod adamw;
mod schedule;

pub use adamw::{AdamW, AdamWConfig, clip_scale, global_norm};
pub use schedule::Schedule;
