//! The labs and their exercises, as `labs/labs.toml` lists them; what a lab says first and last.
//!
//! Reading order: `labs_toml.rs` (the list), `lesson.rs` (a lab's run, its first and last lines),
//! `paths.rs` (how the page of paths is read), `question.rs` (a question with its answer and the
//! thoughts that lead to others), `predict.rs` (a lab asks one before it runs), `exercise_check.rs`
//! (the claims of an exercise's check).

pub mod exercise_check;
mod labs_toml;
mod lesson;
pub mod paths;
pub mod predict;
pub mod question;

pub use labs_toml::{Course, Exercise, Lab, Ladder, Mistake, TwoDays, UnderMpi, capitalized};
pub use lesson::{Lesson, ensure_passed, run};
pub use question::{Ask, Question};
