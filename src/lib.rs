//! How large models are trained on many devices, by running it: real tensors, real ranks, on a laptop.
//!
//! The labs (`labs/labNN_*.rs`) are the lessons; this library holds the mechanisms, each file one concept.
//! The rooms, in reading order; each knows only rooms above it:
//!
//! | room | what it is for |
//! |---|---|
//! | [`show`] | plots, tables, the screen: the only place that draws |
//! | [`comm`] | ranks talking to each other: collectives, transports, what they cost |
//! | [`launch`] | starting N ranks |
//! | [`tensor`] | what candle lacks for training on a CPU: operations with a backward pass, flat parameters |

pub mod checkpoint;
pub mod comm;
pub mod data;
pub mod error;
pub mod launch;
pub mod model;
pub mod parallel;
pub mod plan;
pub mod show;
pub mod tensor;
pub mod train;
