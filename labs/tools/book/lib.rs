//! The workbook's book: what keeps its pages true.
//!
//! Pages are Markdown in `book/src`. Listings are included from the labs by anchors, outputs and
//! figures are files that a command makes, and never typed. In reading order:
//!
//! - `outputs.rs`: runs the commands of `book/outputs.toml`, and writes or compares what they print
//! - `compare.rs`: what may differ between two runs of one command, and what may not
//! - `notebook.rs`: the same for what the notebooks' cells print
//! - `colours.rs`: an output in the colours of the terminal
//! - `math.rs`: formulas: TeX in the pages, MathML in the book (mdBook's preprocessor)
//! - `tabs.rs`: a listing in Rust beside its twin in PyTorch
//! - `aids.rs`: what a page gets beside its text: the glossary's definitions, and the reader's path
//! - `over_a_step.rs`: the activations that are alive over a step
//! - `draw/`: what pages draw and no screen does
//! - `figures/`: pictures for pages; `live.rs`: those that a reader can change. Where a reader can
//!   choose among few enough cases, all are written into the page (`cases.rs`), and the script only
//!   draws: `schedules.rs`, `plans.rs`, `cut.rs` (an MLP on ranks), `reshard.rs`, `straggler.rs`,
//!   `drift.rs` and `divisor.rs`; `mesh.rs` does so in part. Other scripts have formulas, which are
//!   compared: `exposed.rs` (overlap), `memory.rs` and `bad_batch.rs`, with `noise.rs`;
//!   `numbers.rs` has what they must compute
//!
//! `places.rs` fills places of a page: `predictions.rs` asks each lab for its questions,
//! `answers.rs` makes the forms of short exercises, and `decks.rs` the slides of every lab.
//!
//! `site.rs` builds it all into one folder, with the labs that run on its pages; `heads.rs` says in
//! each page's head what it is about.
//!
//! `book/browse.py` opens every page in a real browser, and `book/figures` has the scripts of
//! interactive figures.

mod aids;
mod answers;
mod bad_batch;
mod cases;
mod colours;
mod compare;
mod cut;
mod decks;
mod divisor;
mod draw;
mod drift;
mod exposed;
mod figures;
mod heads;
mod live;
mod math;
mod memory;
mod mesh;
mod noise;
mod notebook;
mod numbers;
mod outputs;
mod over_a_step;
mod places;
mod plans;
mod predictions;
mod reshard;
mod schedules;
mod site;
mod straggler;
mod tabs;

// A notebook names two crates of ours: the library, and one that has the rest.
pub use kit;
pub use labs::*;

pub use colours::plain;
pub use compare::{Rule, differences};
pub use figures::{figure, plot};
pub use live::{cases, live};
pub use math::{mathml_of_page, preprocess};
pub use notebook::compare_notebooks;
pub use numbers::numbers;
pub use outputs::{Output, compare, outputs, write};
pub use over_a_step::{Keep, activations_over_a_step};
pub use site::build;
