//! A training that is saved on some ranks and continues on others.
//!
//! Reading order: `job.rs` (how many ranks, and how they share the model), `resume.rs` (train,
//! save, convert, resume), `picture.rs` (which rank holds which slice), `losses.rs` (of the steps
//! after the save), `padding.rs` (records that a slice is too short for), `incident.rs` (the
//! conversion that failed at 768 ranks, with real files).

mod incident;
pub mod job;
mod losses;
mod padding;
mod picture;
mod resume;

pub use incident::{CONTROL, FAILED, Incident, incident};
pub use kit;
pub use losses::losses;
pub use padding::{Recorded, figures as padding_figures, plots, tables};
pub use picture::{picture, pictures};
pub use resume::{Folders, Resumed, Run, begin, resume};
