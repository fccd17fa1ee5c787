//! Draws plain values: the only room that draws. Numbers in words are from the library
//! (`shardlab::units`).
//!
//! Plain values go in, text comes out, and this room uses no other. A lab computes first, then
//! hands its figures here. Reading order:
//!
//! - `screen.rs`: how wide, with colour or not, and the few line forms every lab uses
//! - `colour.rs`: what each colour means, on screens and on pages
//! - `complaint.rs`: errors and notices
//! - `progress.rs`: the one line that moves, on a terminal that waits
//! - `terminal.rs`: whether someone looks at it, and how wide it is
//! - `table.rs`: a small table that stays within the width
//! - `bars.rs`: the share of each part in a whole, and amounts on one scale
//! - `plot.rs`: curves, made of `axis.rs` (where a value belongs), `canvas.rs` (which cell that
//!   is) and `frame.rs` (title, legend and the values at the sides)
//! - `grid.rs`: the numbers of each rank, before and after
//! - `timeline.rs`: who did what when, one row per rank, and the glyph of each activity
//! - `gantt.rs`: a pipeline's passes, one row per rank; `gantt_svg.rs`: the same for pages
//! - `trace.rs`: a timeline as a file, for a trace viewer
//! - `tree.rs`: a whole, its parts and their parts, as a profiler shows them
//! - `holdings.rs`: who holds what: devices as columns, the same drawing in every strategy's lab
//! - `loads.rs`: whether the bytes of each choice fit into a device
//! - `nodes.rs`: the ranks on each node; `links.rs`: and the links between them
//! - `matrices.rs`: a matrix product that ranks share
//! - `replicas.rs`: a mesh of ranks: replicas, their stages, and the ranks of each stage
//! - `chunks.rs`: an algorithm's chunks, who holds them and who sends them
//! - `draws.rs`: the micro-batches that a training draws, and the steps that learn from them
//! - `slices.rs`: one buffer, cut in several ways, and the rank that holds each piece
//! - `block.rs`: a transformer block
//! - `sketch.rs`: boxes, words and arrows, for the book's own figures
//! - `svg.rs`: SVG for pages, and `curves.rs`: plots as SVG
//! - `scene.rs`: drawings that say once what is where, for text and SVG
//! - `text.rs`: visible width and line folding, for all of the above
//!
//! Two promises hold everywhere: what stays on a screen moves no cursor, so a redirected run reads
//! like the live one; and colour never says anything that the plain text does not say too. One
//! character is taken to be one column wide; wide (East Asian) text may run over.

mod axis;
mod bars;
mod block;
mod canvas;
mod chunks;
mod colour;
mod complaint;
mod curves;
mod draws;
mod frame;
mod gantt;
mod gantt_svg;
mod grid;
mod holdings;
mod links;
mod loads;
mod matrices;
mod nodes;
mod plot;
mod progress;
mod replicas;
mod scene;
mod screen;
mod sketch;
mod slices;
mod svg;
mod table;
mod terminal;
mod text;
mod timeline;
pub mod trace;
mod tree;

pub use bars::{bar, bar_to_scale, shares};
pub use block::{block, block_svg};
pub use chunks::{Chunk, Moments, Ring};
pub use complaint::complain_folded;
pub use draws::Draws;
pub use gantt::{Bar, Chart, gantt};
pub use gantt_svg::gantt_svg;
pub use grid::{Cell, before_and_after};
pub use holdings::{Fill, Holding, Holdings};
pub use links::Links;
pub use loads::Loads;
pub use matrices::{Matrices, Matrix};
pub use nodes::Nodes;
pub use plot::{Labels, Plot, Series, Style};
pub use progress::{erased, progress};
pub use replicas::Replicas;
pub use screen::Screen;
pub use shardlab::notice::complain;
pub use shardlab::plan::{Activity, Interval};
pub use shardlab::units::{
    bytes_binary, bytes_decimal, general, percent, seconds, significant, thousands,
};
pub use sketch::{Align, Coat, Ink, Sketch, Stroke};
pub use slices::{Piece, Slices};
pub use svg::Picture;
pub use table::{ranked, table};
pub use text::folded;
pub use timeline::Timeline;
pub use tree::{Branch, tree};
