//! Training large models on many devices, learned by running it: real tensors, real ranks, on a
//! laptop.
//!
//! Two ranks, threads of this process, take the mean of their gradients:
//!
//! ```
//! use shardlab::{comm::Reduce, launch};
//!
//! let means = launch::run(2, |comm| {
//!     let mut gradient = [comm.rank() as f32, 1.0];
//!     comm.all_reduce(&mut gradient, Reduce::Mean)?;
//!     Ok(gradient)
//! })?;
//! assert_eq!(means, [[0.5, 1.0]; 2]);
//! # anyhow::Ok(())
//! ```
//!
//! The labs (`labs/labNN/lesson.rs`) are the lessons. This library holds the mechanisms, one
//! concept per file. What is known of a job before a tensor is made lies below it, in the package
//! `shapes`: a model's shape, and a strategy with its schedule. The table lists the rooms in
//! reading order. Each room uses only rooms above it:
//!
//! | room | what it is for |
//! |---|---|
//! | [`allocator`] | counts the bytes of each thread, in programs that install it |
//! | [`notice`] | errors and notices, on stderr |
//! | [`simd`] | loops in the machine's own vector instructions |
//! | [`difference`] | how far apart two vectors are: no NaN and no missing element is overlooked |
//! | [`sha256`] | the hash by which files and models are compared |
//! | [`comm`] | communication between ranks: collectives, what they consist of and cost, transports |
//! | [`launch`] | starting N ranks; the launcher around them, and this machine's memory, cores and name |
//! | `memory` | what a step frees is kept, and large blocks lie in large pages |
//! | [`mesh`] | the ranks of a job in groups, one for each way in which it is divided |
//! | [`plan`] | a model's shape and what follows from it, and a collective's time on a network that is not here |
//! | [`tensor`] | adds to candle what training on a CPU needs: operations with a backward pass, flat parameters |
//! | [`data`] | text as tokens (or random numbers), and each rank's batches |
//! | [`model`] | models, composed of layers that a builder supplies |
//! | [`optim`] | the optimizer and the global norm, on flat buffers |
//! | [`parallel`] | ways to divide one training job among ranks |
//! | [`checkpoint`] | weights, and the whole state of a training, on disk |
//! | [`train`] | a training step: who takes it, its settings and its outcome |

pub mod allocator;
pub mod checkpoint;
pub mod comm;
pub mod data;
pub mod difference;
pub mod launch;
mod memory;
pub mod mesh;
pub mod model;
pub mod notice;
pub mod optim;
pub mod parallel;
pub mod plan;
pub mod sha256;
pub mod simd;
pub mod tensor;
pub mod train;

pub use shapes::{error, files, named, units};

/// The result that labs, exercises and notebook cells return.
pub use anyhow::Result;
