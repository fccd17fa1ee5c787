//! The gradients' global norm, and the optimizer's step: arithmetic on a rank's own state.
//!
//! Reading order: `norm.rs`, `fragment.rs` (the fragments that a rank's state consists of),
//! `store.rs` (the memory or files that hold it), `adamw.rs`, `muon.rs` (a step of one matrix),
//! `matrices.rs` (a rank's matrices), `optimizer.rs`.

mod adamw;
mod fragment;
mod matrices;
mod muon;
mod norm;
mod optimizer;
mod store;

pub use adamw::{AdamW, AdamWConfig, State};
pub use fragment::{Fragment, InitialValues, initial_store};
pub use matrices::{Gathered, Muon};
pub use muon::{MuonConfig, MuonScale, NewtonSchulz, orthogonal};
pub use norm::{NotFinite, clip_scale, global_norm, stored_norm};
pub(crate) use norm::{largest, sums};
pub use optimizer::Optimizer;
pub use store::{Offload, OffloadFolder, StateStore, StoredBytes, Window, Windowed};
