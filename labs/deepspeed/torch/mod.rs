//! Files that `torch.save` writes: read without running any of their code, and written so that
//! `torch.load` reads them.
//!
//! Such a file is a zip archive. Its entry `data.pkl` is a pickle: a small program for a machine
//! with a stack, which builds dictionaries and lists, and may call any function of the reader's
//! Python. Each tensor's numbers are in one more entry.
//!
//! Reading order: `value.rs` and `node.rs` (the values that a pickle describes), `pickle.rs` (the
//! machine, with its `program.rs` and `stack.rs`), `zip.rs` (the archive), `tensor.rs` (which
//! values are tensors), `file.rs` (one file, opened), `encode.rs` and `write.rs` (the way back).

mod encode;
mod file;
mod node;
mod pickle;
mod program;
mod stack;
mod tensor;
mod value;
mod write;
mod zip;

pub(crate) use encode::{encode, strides};
pub use file::{Stored, TorchFile};
pub use node::Node;
pub use pickle::read_pickle;
pub use tensor::Dtype;
pub(crate) use tensor::last;
pub use value::{Graph, Id, Value};
pub use write::{Fields, save_graph, save_number, save_tensor, save_value, write_archive};
