//! Back to libraries: one model under every strategy, with the settings and the lines of the tools
//! that people use.
//!
//! Reading order: `config.rs` (what a job divides, and DeepSpeed's JSON of it), `model.rs` (a
//! shape or a pretrained model), `benchmark.rs` (a job on its ranks, measured), `lines.rs` (what
//! the source prints of it), `source.rs` (how the source counts), `local_as_global.rs` (what may
//! have emptied its ranks), `strategies.rs` (the jobs side by side), `printed.rs` (one job on the
//! screen), `roofline.rs` (how far from this machine's peaks), `sampling.rs` (the choice of a
//! token), `cache.rs` (the keys and values of earlier ones), `continuation.rs` (token by token,
//! from a model that ranks share), `inference.rs` (ranks gather its weights), `text.rs` and
//! `generation.rs` (a text under every strategy), `reference.rs` (the same text from
//! candle-transformers), `life_cycle.rs` (what a model costs); `hub.rs` (downloads), `pretrained/`
//! (their files), `candle_llama.rs` (candle's own Llama, to compare with).

mod benchmark;
mod cache;
#[cfg(feature = "llm")]
mod candle_llama;
mod config;
mod continuation;
mod generation;
#[cfg(feature = "llm")]
mod hub;
mod inference;
mod life_cycle;
mod lines;
mod local_as_global;
mod model;
pub mod pretrained;
mod printed;
mod reference;
mod roofline;
mod sampling;
pub mod source;
mod strategies;
mod text;

pub use benchmark::{Benchmark, Harness, Measured, on_ranks, run_distributed_benchmark};
pub use cache::KvCache;
pub use config::{DsConfig, PipelineConfig, make_ds_config, share};
pub use continuation::{Continuation, generate};
pub use generation::{compare, for_texts};
pub use inference::ZeroInference;
pub use life_cycle::{life_cycle, stages};
pub use lines::{MEMORY_MEANS, Timed};
pub use local_as_global::local_as_global;
pub use model::Model;
pub use printed::{as_the_source_prints, print_deepspeed};
pub use reference::check_reference;
pub use roofline::{Point, points, roofline, roofline_plot};
pub use sampling::TokenSampling;
pub use strategies::{
    BATCHES, Candidate, LeftOut, all, check, check_finale, compared, finale, for_finale, left_out,
    over_batches, throughput,
};
pub use text::{Generation, Job};
