//! What becomes of gradients: their global norm, and the optimizer's step. Arithmetic on a rank's own state.
//!
//! Reading order: `norm.rs`, `fragment.rs` (what a rank's state consists of), `store.rs` (where it is kept), `adamw.rs`.

mod adamw;
mod fragment;
mod norm;
mod store;

pub use adamw::{AdamW, AdamWConfig, State};
pub use fragment::{Begin, Fragment, begun};
pub use norm::{NotFinite, clip_scale, global_norm, stored_norm};
pub(crate) use norm::{largest, sums};
pub use store::{Offload, Store, Windowed};
