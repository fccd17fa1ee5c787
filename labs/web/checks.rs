//! The checks of the short exercises, as the workbook compiles them: each is called with what
//! a reader has typed into its form, and prints its events, a JSON line each.

use exercise::is_typed;
use std::process::ExitCode;

/// Checks what was typed into the form of an exercise: its name, and then the fields.
pub fn check(arguments: &[String]) -> ExitCode {
    let Some((name, fields)) = arguments.split_first() else {
        return refused("give an exercise's name, and what was typed");
    };
    match CHECKS.iter().find(|check| check.name.replace('_', "-") == *name) {
        Some(check) if (check.is_typed)(fields.to_vec()) => (check.run)(),
        Some(check) => refused(check.asks),
        None => refused(&format!("no form is of {name}")),
    }
}

fn refused(what: &str) -> ExitCode {
    eprintln!("{what}");
    ExitCode::from(2)
}

struct Check {
    name: &'static str,
    is_typed: fn(Vec<String>) -> bool,
    /// What to say of what cannot be read.
    asks: &'static str,
    run: fn() -> ExitCode,
}

macro_rules! checks {
    ($($path:literal $name:ident: $answer:ty, $asks:expr;)*) => {
        $(
            #[path = $path]
            mod $name;
        )*
        const CHECKS: &[Check] = &[$(Check {
            name: stringify!($name),
            is_typed: is_typed::<$answer>,
            asks: $asks,
            run: $name::main,
        }),*];
    };
}

const NUMBER: &str = "That is no number.";
const WHOLE: &str = "That is no whole number.";

checks! {
    "../lab01/checks/lab01_which.rs" lab01_which: &'static str, "Type a call's name.";
    "../lab02/checks/lab02_divide.rs" lab02_divide: usize, WHOLE;
    "../lab03/checks/lab03_replicas.rs" lab03_replicas: char, "Type one letter.";
    "../lab03/checks/lab03_profile.rs" lab03_profile: [usize; 3], "Type whole numbers.";
    "../lab04/checks/lab04_holds.rs" lab04_holds: u64, WHOLE;
    "../lab05/checks/lab05_slice.rs" lab05_slice: [usize; 2], WHOLE;
    "../lab06/checks/lab06_bubble.rs" lab06_bubble: u64, WHOLE;
    "../lab07/checks/lab07_where.rs" lab07_where: usize, WHOLE;
    "../lab08/checks/lab08_after.rs" lab08_after: usize, WHOLE;
    "../lab09/checks/lab09_pieces.rs" lab09_pieces: (usize, usize), WHOLE;
    "../lab09/checks/lab09_control.rs" lab09_control: usize, WHOLE;
    "../lab10/checks/lab10_settings.rs" lab10_settings: usize, WHOLE;
    "../lab11/checks/lab11_state.rs" lab11_state: f64, NUMBER;
    "../lab12/checks/lab12_zigzag.rs" lab12_zigzag: [usize; 2], WHOLE;
    "../lab13/checks/lab13_counts.rs" lab13_counts: [usize; 4], WHOLE;
}
