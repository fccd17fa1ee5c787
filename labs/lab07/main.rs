//! lab07's program; `lesson.rs` is the lesson.

use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    kit::lab(lab07::run, lab07::QUESTIONS[0])
}
