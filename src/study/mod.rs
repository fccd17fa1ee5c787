//! The pictures, measurements and figures of one lab each: its apparatus, so that the lab itself is the lesson.
//!
//! Reading order: `collectives/` (lab01), `smallest/` (lab02), `zero.rs` (lab04), `tensor/` (lab05), `pipeline/` (lab06),
//! `axes/` (lab07), `survive/` (lab08), `reshard/` (lab09), `libraries/` (lab10), `decide/` (lab11).

pub mod axes;
pub mod collectives;
pub mod decide;
pub mod libraries;
pub mod pipeline;
pub mod reshard;
pub mod smallest;
pub mod survive;
pub mod tensor;
pub mod zero;
