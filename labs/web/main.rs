//! All labs and `formats` in one program, for the book's pages: it is the lab that it is called.
//!
//! A page starts it with a lab's name in place of a program's, and then the flags, as a shell
//! would start that lab's own program. Called `check` it checks an exercise's form.

mod checks;

use shardlab::allocator::Counting;
use std::process::ExitCode;

/// Some labs count what their ranks allocate.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let called = std::env::args().next().unwrap_or_default();
    let name = called.rsplit('/').next().unwrap_or_default();
    match name {
        "check" => return checks::check(&std::env::args().skip(1).collect::<Vec<_>>()),
        "formats" => return formats::main(),
        _ => {}
    }
    match labs::ALL.iter().find(|lab| lab.name == name) {
        Some(lab) => (lab.run)(),
        None => {
            let names: Vec<&str> = labs::ALL.iter().map(|lab| lab.name).collect();
            eprintln!("error: no lab is called {name}\nhelp: the labs are {}", names.join(", "));
            ExitCode::from(2)
        }
    }
}
