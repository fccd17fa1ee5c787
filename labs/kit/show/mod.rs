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
//! - `terminal.rs`: whether someone looks at it, and its size; `above.rs`: what has left it
//! - `table.rs`: a small table that stays within the width; `explained.rs`: with words below it
//! - `bars.rs`: the share of each part in a whole, and amounts on one scale
//! - `plot/`: curves
//! - `numbers.rs`: numbers as C writes them, and with the word for what is counted
//! - `activity.rs`: what a rank does, with its glyph
//! - `timeline.rs`: who did what when, one row per rank
//! - `gantt.rs`: a pipeline's passes, one row per rank
//! - `heat.rs`: amounts over time, one row each
//! - `trace.rs`: a timeline as a file, for a trace viewer; `profile.rs`: such a file read again
//! - `holdings.rs`: who holds what: devices as columns, the same drawing in every strategy's lab
//! - `svg.rs`: SVG for pages, and what the book's own drawings are made of
//! - `scene.rs`: drawings that say once what is where, for text and SVG
//! - `nodes.rs`: the ranks on each node, for pages alone; `draws.rs`: the micro-batches that a
//!   training draws, for pages and notebooks
//! - `text.rs`: visible width and line folding, for all of the above
//!
//! Two promises hold everywhere: what stays on a screen moves no cursor, so a redirected run reads
//! like the live one; and colour never says anything that the plain text does not say too. One
//! character is taken to be one column wide; wide (East Asian) text may run over.

pub mod above;
mod activity;
mod bars;
mod colour;
mod complaint;
mod draws;
mod explained;
mod gantt;
mod heat;
mod holdings;
mod nodes;
mod numbers;
mod plot;
pub mod profile;
mod progress;
mod scene;
mod screen;
pub mod svg;
mod table;
mod terminal;
mod text;
mod timeline;
pub mod trace;

pub use activity::{Activity, Interval};
pub use bars::{bar, bar_to_scale, glyphs, shares};
pub use complaint::complain_folded;
pub(crate) use complaint::in_lines;
pub use draws::Draws;
pub use explained::{explained, rows_of};
pub use gantt::{Bar, Chart, gantt};
pub use heat::{Heat, Panel};
pub use holdings::{Fill, Holding, Holdings};
pub use nodes::Nodes;
pub use numbers::{counted, general};
pub use plot::{Plot, Series, Style};
pub use progress::{erased, progress};
pub use scene::{Look, Scene};
pub use screen::Screen;
pub use shardlab::notice::complain;
pub use shardlab::units::{bytes_binary, bytes_decimal, percent, seconds, significant, thousands};
pub use svg::Picture;
pub use table::{ranked, table};
pub use terminal::height_of_stdout;
pub use text::{columns, folded, in_common, only_if, pad_left, pad_right, plain, widest};
pub use timeline::Timeline;
