//! Text as numbers, and each rank's share of it.
//!
//! Reading order: `corpus.rs` (which text, its characters as tokens, the two splits), `batches.rs` (which sequences a rank
//! trains on at a step), `uniform.rs` (random numbers in place of text, for the smallest job), `feed.rs` (batches in files, and
//! who reads them when).

mod batches;
mod corpus;
mod feed;
mod uniform;

pub use batches::{Batch, Sampler, Sampling};
pub use corpus::{Corpus, FETCH_COMMAND, Vocabulary};
pub use feed::{Fed, Feed, Store};
pub use uniform::Uniform;
