//! A training that is saved on some ranks and continues on others.
//!
//! Reading order: `job.rs` (how many ranks, and how they share the model), `run.rs` (train, save,
//! convert, resume), `picture.rs` (which rank holds which slice), `padding.rs` (records that a
//! slice is too short for), `incident.rs` (the conversion that failed at 768 ranks, with real
//! files).

mod incident;
mod job;
mod padding;
mod picture;
mod run;

pub use incident::{CONTROL, FAILED, Incident, incident};
pub use job::{Job, small};
pub use kit;
pub use padding::{Recorded, figures as padding_figures, plots, tables};
pub use picture::picture;
pub use run::{Break, Folders, Run, begin, resume};
