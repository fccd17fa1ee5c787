//! Checkpoints of several formats, as lists of tensors: read, compared, and written in another.
//!
//! Reading order: `safetensors.rs` (that format; `../dcp` has PyTorch's), `open.rs` (what a
//! folder is), `convert.rs` (a conversion, first planned), `diff.rs` (two checkpoints, tensor by
//! tensor).

mod convert;
mod diff;
mod open;
mod safetensors;

pub use convert::{Conversion, Plan};
pub use diff::{Difference, diff};
pub use open::{Format, open};
