//! lab01's study of collectives: the effect, the cost, the time here, and the time on a network
//! that is not here.
//!
//! Reading order:
//! - `by_algorithm.rs`: the collectives by any of the library's algorithms; `call.rs`: all in one
//!   form
//! - `grid.rs`: the numbers of each rank; `picture.rs`: before and after, and round by round
//! - `formula.rs`: what an algorithm costs, in symbols; `counts.rs`: messages and bytes, measured
//!   beside it
//! - `benchmark.rs`: times, measured here; `bandwidth.rs`: how fast that is, in the field's terms
//! - `predict.rs`: times on a network that is not here
//! - `feed.rs`: batches in files, and the ranks that read them; `feeding.rs`: how long ranks wait
//!   for them
//! - `sections.rs`: what each of these prints on the lab's screen
//! - `breaking.rs`: ranks that do not do the same

mod bandwidth;
pub mod benchmark;
pub mod breaking;
pub mod by_algorithm;
mod call;
pub mod counts;
mod feed;
pub mod feeding;
mod formula;
mod grid;
pub mod picture;
pub mod predict;
pub mod sections;

pub use call::Way;
pub use feed::{Fed, Feed, Store};
pub use formula::{Formula, formula};
