//! Small wrong edits of the library, made by rule, and the tests that notice them.
//!
//! `draw SEED` finds each place of each rule (`rules.tsv`) in the rooms' files (`rooms.tsv`), draws
//! a quota for every room, leaves out what does not compile, and writes `list.tsv`. `run` compiles
//! all edits of the list at once, in a copy of the checkout, each behind a switch (the variable
//! `MUTANT`), and starts the room's tests for one after the other. The list then has the outcomes;
//! `git diff` shows which are new. It keeps why some survive: whoever finds out writes it there.

mod edit;
mod list;
mod rules;
mod tests;

use std::sync::LazyLock;
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A part of the library, and the tests that should notice what is wrong in it.
struct Room {
    name: &'static str,
    folder: &'static str,
    package: &'static str,
    /// The package's folder, in which its unit tests run.
    home: &'static str,
    /// What these tests' names contain. All run, if it is empty.
    units: &'static str,
    /// Modules of tests/library and tests/all.
    modules: &'static str,
    quota: usize,
}

static ROOMS: LazyLock<Vec<Room>> =
    LazyLock::new(|| rows(include_str!("rooms.tsv")).map(room).collect());

fn room(row: &'static str) -> Room {
    let [name, folder, package, home, units, modules, quota] = parts(row, '\t').expect(row);
    let quota = quota.parse().expect(row);
    Room { name, folder, package, home, units, modules, quota }
}

/// A table's rows, beneath the line that says what their columns are.
fn rows(table: &str) -> impl Iterator<Item = &str> {
    table.lines().filter(|line| !line.starts_with('#'))
}

/// A text's parts, of which the last may contain the separator.
fn parts<const N: usize>(text: &str, separator: char) -> Result<[&str; N]> {
    let parts: Vec<&str> = text.splitn(N, separator).collect();
    let error = format!("this should have {N} parts: {text:?}");
    parts.try_into().map_err(|_| error.into())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [verb, seed] if verb == "draw" => list::draw(seed.parse()?),
        [verb] if verb == "run" => run(),
        _ => Err("give `draw SEED` or `run`".into()),
    }
}

/// Runs the list, and prints the share that tests notice.
fn run() -> Result<()> {
    let (head, mut list) = list::read()?;
    // What cargo says has the paths of the programs.
    let named = ["--test", "bf16_products", "--test", "library", "--test", "all"];
    let built = tests::compile(&list, &[&["test", "--no-run", "--lib"][..], &named].concat())?;
    let mut unexplained = Vec::new();
    for room in ROOMS.iter() {
        // Nothing may fail without an edit, and one that hangs gets thrice that time.
        let begun = Instant::now();
        if let Some(test) = tests::noticed(room, &built, 0, 900.0)? {
            return Err(format!("{} fails without an edit: {test}", room.name).into());
        }
        let limit = 3.0 * begun.elapsed().as_secs_f64() + 20.0;
        for edit in list.iter_mut().filter(|edit| edit.room.name == room.name) {
            match tests::noticed(room, &built, edit.number, limit)? {
                Some(test) => edit.outcome = format!("caught\t{test}"),
                // With its reason.
                None if edit.outcome.trim_end().starts_with("survives\t") => {}
                None => {
                    edit.outcome = "survives".to_string();
                    unexplained.push(edit.number.to_string());
                }
            }
            println!("{}", edit.row());
        }
    }
    list::write(&head, &list)?;
    for name in ROOMS.iter().map(|room| room.name).chain(["all"]) {
        let edits = list.iter().filter(|edit| name == "all" || name == edit.room.name);
        let caught = edits.clone().filter(|edit| edit.outcome.starts_with("caught")).count();
        println!("{name:10} {caught:2} of {:2} caught", edits.count());
    }
    if unexplained.is_empty() {
        return Ok(());
    }
    eprintln!("error: no test notices {}", unexplained.join(", "));
    eprintln!("help: write a test, or into .ci/mutants/list.tsv why they change nothing");
    std::process::exit(1)
}
