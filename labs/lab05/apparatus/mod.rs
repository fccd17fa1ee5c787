//! Tensor parallelism beside one rank: what each rank holds, keeps, calls and sends, and that all
//! of them train one model.
//!
//! Reading order: `example.rs` (a sum of products, shared), `gemm.rs` (a matrix product, shared)
//! with `matrices.rs` (its drawing), `shared.rs` (a training, shared), `measured.rs` (what it
//! takes), `formulas.rs` (what it should), `slices.rs` (whether two ranks began alike), `checks.rs`
//! (whether it is the same model), `broken.rs` (mistakes), `placement.rs` (which ranks share a
//! node), `benchmark.rs` (how fast it is).

mod benchmark;
mod broken;
mod checks;
mod example;
pub mod formulas;
mod gemm;
mod matrices;
mod measured;
mod placement;
mod shared;
mod slices;

pub use benchmark::benchmark;
pub use broken::{Break, Broken};
pub use checks::{check, same_masks};
pub use example::{Example, products, show_sum};
pub use gemm::{draw_gemm, gemm};
pub use measured::{Measured, Way, compared, measure};
pub use placement::draw_mesh;
pub use shared::{expected_bytes, introduce};
