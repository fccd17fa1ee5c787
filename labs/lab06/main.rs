//! lab06's program; `lesson.rs` is the lesson.

use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    kit::lab(lab06::run, lab06::QUESTIONS[0])
}
