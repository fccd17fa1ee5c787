//! Tensor parallelism beside one rank: what each rank holds, keeps, calls and sends, and that all
//! of them train one model.
//!
//! Reading order: `beside.rs` (the lesson's MLP and the library's), `example.rs` (a sum of
//! products, shared), `gemm.rs` (a matrix product, shared), `shared.rs` (a model, shared),
//! `measured.rs` (what it takes), `slices.rs` (whether two ranks began alike), `checks.rs` (whether
//! it is the same model), `broken.rs` (mistakes), `placement.rs` (which ranks share a node),
//! `benchmark.rs` (how fast it is), `flags.rs`.

mod benchmark;
mod beside;
mod broken;
mod checks;
mod example;
mod flags;
mod gemm;
mod measured;
mod placement;
mod shared;
mod slices;

pub use benchmark::benchmark;
pub use beside::compare_mlps;
pub use broken::{Break, Broken};
pub use checks::{check, same_masks};
pub use example::{Example, products};
pub use flags::{Show, TensorFlags};
pub use gemm::gemm;
pub use kit;
pub use measured::{Measured, Reference, Way, compared, measure};
pub use shared::{Shared, expected_bytes, introduce, same_as_one_rank};
