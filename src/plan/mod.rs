//! Arithmetic before anything is allocated or sent: parameters, memory and FLOPs of a model; what a collective costs. No tensors.

mod formula;
mod gpt;

pub use formula::{Formula, formula};
pub use gpt::{GptShape, Memory};
