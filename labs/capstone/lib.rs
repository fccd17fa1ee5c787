//! Your own trainer: the exercises' solutions train one GPT together.

pub mod parts;

pub use parts::{Part, Parts};

use std::process::ExitCode;

/// Trains with `yours`. `have` are the parts that the reader has written; all others in `yours` are the library's.
pub fn main(_yours: Parts, _have: &[Part]) -> ExitCode {
    ExitCode::SUCCESS
}
