//! Text as numbers, and each rank's batches.
//!
//! Reading order: `corpus.rs` (the text, its characters as tokens, the two splits), `batches.rs`
//! (the sequences that a rank trains on at a step), `uniform.rs` (random numbers instead of text,
//! for the smallest job).

mod batches;
mod corpus;
mod uniform;

pub use batches::{Batch, Sampler, Sampling};
pub use corpus::{Corpus, FETCH_COMMAND, Vocabulary};
pub use uniform::Uniform;
