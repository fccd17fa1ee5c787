//! Matrix products in bf16 with sums in f32, on the calling thread: with the processor's own
//! instruction where it is fast, and with the same bits where it is not, or where there is none.
//! Processors with tiles (AMX) are several times as fast in those, to bits of their own.
//!
//! ```
//! use bf16_products::{Matrix, Way, Write, matmul};
//! let a = [1.0, 2.0, 3.0, 4.0];
//! let b = [1.0, 0.0, 0.0, 1.001]; // 1.001 is rounded to 1.0
//! let mut c = [0.0; 4];
//! matmul(&mut c, 2, Write::Replace, Matrix::new(&a, 2, 2), Matrix::new(&b, 2, 2), Way::best());
//! assert_eq!(c, a);
//! ```
//!
//! # What is computed
//!
//! Factors are f32 or bf16. An f32 is rounded to the nearest bf16, ties to even; what is below the
//! normal range (2⁻¹²⁶) becomes zero. An element of the result is a sum over the inner index in
//! this order:
//!
//! - Blocks of [`BLOCK`] inner positions have a sum of their own each, which begins at zero. The
//!   blocks' sums are added, in order, to the first one, or to what the destination held.
//! - A block's sum takes two products at a time, the one with the odd position first. Each is a
//!   fused multiply-add: one rounding, to nearest, ties to even. A result below the normal range
//!   becomes a zero of its sign.
//!
//! That is what VDPBF16PS does, whatever the processor's rounding mode and flags say. Intel
//! describes it so (Architecture Instruction Set Extensions Programming Reference, VDPBF16PS), and
//! AMD's Zen 4 and 5 do it: `record.txt` holds results of one. Tensor cores have the same formats,
//! and sum in another order with another rounding: see Fasi et al., "Numerical behavior of NVIDIA
//! tensor cores", PeerJ Computer Science 7:e330, 2021.
//!
//! A NaN stays one; its payload is not defined.
//!
//! # What tiles compute
//!
//! [`Way::Tiles`] is the one way with bits of its own, because no fast use of TDPBF16PS has the
//! order above. Factors are rounded in the same way. An element begins at zero, or at what the
//! destination held; [`pairs_added`] adds [`STEP`] inner positions at a time to it, the last of
//! them filled up with zeros. That emulates the instruction, and runs on any machine: it gave every
//! bit of 1.8 million elements that an Intel Xeon computed, 1,040 of which are in `amx.txt`.
//!
//! So [`Way::best`] has other bits on processors with tiles. [`Way::best_of_vectors`] has the same
//! bits on all.
//!
//! # How
//!
//! As in Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (ACM TOMS
//! 34(3), 2008): `pack.rs` copies blocks of both factors into the order in which a kernel reads
//! them, and rounds them there. `product.rs` has the loops around the kernels. `kernel.rs`
//! computes a tile of the result (`tile.rs`), in four ways ([`Way`]). `tiles.rs` has the loops and
//! the kernel of the fifth way. Its instructions (`instructions.rs`) are the processor's
//! (`amx.rs`), or emulated (`emulated.rs`).

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx;
mod emulated;
mod fastest;
mod instructions;
mod kernel;
mod matrix;
mod number;
mod pack;
mod product;
mod tile;
mod tiles;

pub use emulated::pairs_added;
pub use instructions::STEP;
pub use kernel::Way;
pub use matrix::{Matrix, Write};
pub use number::Number;
pub use product::{BLOCK, matmul, product};
