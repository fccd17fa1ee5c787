//! How large models are trained on many devices, by running it: real tensors, real ranks, on a laptop.
//!
//! The labs (`labs/labNN_*.rs`) are the lessons; this library holds the mechanisms, each file one concept.
//! The rooms, in reading order; each knows only rooms above it:
//!
//! | room | what it is for |
//! |---|---|
//! | [`show`] | draws plain values: plots, tables, the screen; nothing else draws |
//! | [`simd`] | loops in the machine's own vector instructions |
//! | [`error`] | input that a lab refuses, and exit codes |
//! | [`sha256`] | the hash by which files and models are compared |
//! | [`comm`] | ranks talking to each other: collectives, what they consist of and cost, transports |
//! | [`launch`] | starting N ranks; the job around them: nodes, and the line that starts it there |
//! | [`mesh`] | the ranks of a job in groups: data, pipeline, tensor parallelism |
//! | [`plan`] | computes: parameters, memory and FLOPs of a model, time on a network; no tensors |
//! | [`tensor`] | what candle lacks for training on a CPU: operations with a backward pass, flat parameters |
//! | [`data`] | text as tokens (or random numbers), and each rank's batches |
//! | [`model`] | the GPT, a composition of layers that are handed in, and a stack of linear layers |
//! | [`optim`] | the optimizer and the global norm, on flat buffers |
//! | [`parallel`] | ways to divide one training job among ranks: data parallelism, ZeRO |
//! | [`checkpoint`] | weights on disk |
//! | [`train`] | what a step is: its schedule, evaluation, flags, journal and checks |
//! | [`study`] | what one lab measures and shows, a folder or file for each |
//! | [`book`] | what keeps the book's pages true: outputs, figures, formulas |
//! | [`workbook`] | the exercises: what the reader has done, and how far it is right |

pub mod book;
pub mod checkpoint;
pub mod comm;
pub mod data;
pub mod error;
pub mod launch;
pub mod mesh;
pub mod model;
pub mod optim;
pub mod parallel;
pub mod plan;
pub mod sha256;
pub mod show;
pub mod simd;
pub mod study;
pub mod tensor;
pub mod train;
pub mod workbook;

/// What labs, exercises and notebook cells return.
pub use anyhow::Result;
