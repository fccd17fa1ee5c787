//! Arithmetic about a model before anything is allocated: parameters, memory, FLOPs. No tensors.

mod gpt;

pub use gpt::{GptShape, Memory};
