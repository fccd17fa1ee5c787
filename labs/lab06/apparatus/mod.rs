//! Pipelines beside one rank: what each rank waits for, keeps and sends, and that all of them train
//! one model.
//!
//! Reading order: `predicted.rs` (what a schedule should take), `order.rs` (a schedule as
//! Megatron-LM's log has it), `rehearsal.rs` (can it end?), `broken.rs` (mistakes), `choice.rs`,
//! `uneven.rs` and `dynamic.rs` (ranks that choose the next pass while they run), `unpipelined.rs`
//! (the same steps on one rank), `measured.rs` (what it takes), `report.rs` (the screens),
//! `benchmark.rs` (how fast it is).

mod benchmark;
mod broken;
pub mod choice;
pub mod dynamic;
mod measured;
mod order;
mod predicted;
mod rehearsal;
mod report;
pub mod uneven;
mod unpipelined;

pub use benchmark::benchmark;
pub use broken::Break;
pub use measured::{Measured, Way, measure, message_bytes, programs};
pub use order::{log, log_number, print_order};
pub use predicted::{Predicted, pipeline_of};
pub use rehearsal::{Unplayable, rehearse};
pub use report::{
    bubble, charts, check, compared, holdings, introduce, losses, planned, recomputed,
};
pub use unpipelined::{Unpipelined, unpipelined};
