//! A training that is saved on some ranks and continues on others.
//!
//! Reading order: `job.rs` (how many ranks, and how they share the model), `run.rs` (train, save, convert, resume),
//! `picture.rs` (which rank holds which slice), `padding.rs` (a conversion that fails at 768 ranks).

mod job;
mod padding;
mod picture;
mod run;

pub use job::{Job, small};
pub use padding::{Recorded, padding};
pub use picture::picture;
pub use run::{Folders, Run, begin, resume};
