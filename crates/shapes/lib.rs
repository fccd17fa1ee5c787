//! What is known of a training job before a tensor is made: the model's shape, and how ranks divide
//! it. The library trains by it, labs print it, the planner computes with it. No tensors, no
//! screens, and no ranks that run.
//!
//! | room | what it is for |
//! |---|---|
//! | [`named`] | enums whose values have names |
//! | [`units`] | one number as people write it |
//! | [`error`] | input that is refused before work starts |
//! | [`files`] | opens files that someone else wrote; replaces a file by a whole one |
//! | [`model`] | a model's shape; its parameters by name, their number on a rank, FLOPs |
//! | [`llamas`] | published Llamas, known by heart |
//! | [`config_json`] | a model's shape, read from its file |
//! | `kept` and `activations` | what one block and one rank keep for the backward pass |
//! | `shards` | what ranks hold and keep when tensor ranks and pipeline stages share a model |
//! | [`strategy`] | how ranks divide a job, and what cannot be divided |
//! | `zero` | what ZeRO's stages hold and send |
//! | [`link`] and [`network`] | the time of a message, and of a node's and a cluster's links |
//! | `overlap` | how much of the communication the backward pass hides |

mod activations;
pub mod config_json;
pub mod error;
pub mod files;
mod kept;
pub mod link;
pub mod llamas;
pub mod model;
pub mod named;
pub mod network;
mod overlap;
mod shards;
pub mod strategy;
pub mod units;
mod zero;

pub use activations::Memory;
pub use kept::{AttentionScores, DropoutMasks, Kept};
pub use overlap::exposed;
pub use shards::Shards;
pub use zero::{
    BytesEach, ZeroVolumes, zero_memory, zero_memory_offloaded, zero_traffic, zero_volumes,
};
