//! lab12's program; `lesson.rs` is the lesson.

use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    kit::lab(lab12::run, lab12::QUESTIONS[0])
}
