//! Your own trainer: the exercises' solutions train one GPT together.
//!
//! Reading order:
//!
//! - `parts/`: the twelve parts, each with its interface, the library's version, and the version
//!   that leaves it out; `adapters/`: how a reader's solutions become such versions
//! - `plan.rs` and `poison.rs`: what is trained on which data, and the step that is poisoned
//! - `step.rs` and `clip.rs`: what both lives do in a step
//! - `blocks.rs` and `life1.rs`: the GPT in blocks, and two data ranks with sharded blocks, until
//!   the run is killed; `files.rs`: what they leave behind
//! - `sequence.rs` and `life2.rs`: the GPT with a shared MLP, and four ranks, a pipeline of tensor
//!   groups, from these files
//! - `life.rs`, `child.rs` and `run.rs`: one life, as a process of its own, and both
//! - `compare.rs`, `draws.rs` and `culprit.rs`: whether the run is right, and which part is not
//! - `story.rs`: what happened, as plain values; `screen.rs` draws it; `flags.rs` is the program

mod blocks;
mod child;
mod clip;
pub mod compare;
pub mod culprit;
mod draws;
mod files;
mod flags;
pub mod life;
mod life1;
mod life2;
pub mod parts;
pub mod plan;
mod poison;
pub mod run;
pub mod screen;
mod sequence;
mod step;
pub mod story;

pub use flags::{CALLED, main};
pub use parts::{Part, Parts};
pub use plan::Plan;
pub use step::{Step, Trained};
pub use story::Story;

/// What all ranks of a run share.
pub struct Job<'a> {
    pub plan: Plan,
    pub parts: Parts,
    /// The text to learn.
    pub text: &'a [u32],
}

/// Is told of every step that is over.
pub type Report<'a> = &'a (dyn Fn(Step) + Sync);
