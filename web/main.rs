//! All labs in one program, for the book's pages: it is the lab that it is called.
//!
//! A page starts it with a lab's name in place of a program's, and then the flags, as a shell
//! would start that lab's own program.

use shardlab::allocator::Counting;
use std::process::ExitCode;

/// Some labs count what their ranks allocate.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let name = called.rsplit('/').next().unwrap_or_default();
    match name {
        "lab00" => kit::lab(lab00::run, lab00::prediction),
        "lab01" => kit::lab(lab01::run, lab01::prediction),
        "lab02" => kit::lab(lab02::run, lab02::prediction),
        "lab03" => kit::lab(lab03::run, lab03::prediction),
        "lab04" => kit::lab(lab04::run, lab04::prediction),
        "lab05" => kit::lab(lab05::run, lab05::prediction),
        "lab06" => kit::lab(lab06::run, lab06::prediction),
        "lab07" => kit::lab(lab07::run, lab07::prediction),
        "lab08" => kit::lab(lab08::run, lab08::prediction),
        "lab09" => kit::lab(lab09::run, lab09::prediction),
        "lab10" => kit::lab(lab10::run, lab10::prediction),
        "lab11" => kit::lab(lab11::run, lab11::prediction),
        "lab12" => kit::lab(lab12::run, lab12::prediction),
        _ => {
            eprintln!(
                "error: no lab is called {name}\nhelp: start it under a lab's name, lab00 to lab12"
            );
            ExitCode::from(2)
        }
    }
}
