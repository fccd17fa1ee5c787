//! What the book draws and no lab's screen does. Plain values go in, SVG comes out.
//!
//! - `sketch.rs`: boxes, words and arrows, where a figure says
//! - `block.rs`: a transformer block
//! - `gantt.rs`: a pipeline's passes, which lab06 shows in the terminal
//! - `loads.rs`: whether the bytes of each choice fit into a device
//! - `chunks.rs`: an algorithm's chunks, who holds them and who sends them

mod block;
mod chunks;
mod gantt;
mod loads;
mod sketch;

pub use block::block;
pub use chunks::{Chunk, moments, round};
pub use gantt::gantt;
pub use kit::show::svg::Anchor;
pub use loads::Loads;
pub use sketch::{Coat, Ink, Sketch, Stroke};
