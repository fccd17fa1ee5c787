//! The list: how it is drawn, and its rows.

use super::edit::Edit;
use super::{ROOMS, Result, Room, parts, rows, rules, tests};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const LIST: &str = ".ci/mutants/list.tsv";
const COLUMNS: &str = "number, room, place, rule, old, new, outcome, what noticed it or why none";

/// The list's head, and its edits, where they are now: at the nearest place of the same file with
/// the same text. Whose text or file is gone, is left out.
pub fn read() -> Result<(String, Vec<Edit>)> {
    let text = fs::read_to_string(LIST)?;
    let mut list = Vec::new();
    for row in rows(&text) {
        let [number, name, place, rule, old, new, outcome] = parts(row, '\t')?;
        let [file, line, column] = parts(place, ':')?;
        let at: [usize; 2] = [line.parse()?, column.parse()?];
        let change = [rule, old, new].join("\t");
        let room = ROOMS.iter().find(|room| room.name == name).ok_or(name)?;
        let nearest = rules::edits_of(room, Path::new(file))
            .unwrap_or_default()
            .into_iter()
            .filter(|edit| edit.change() == change)
            .min_by_key(|edit| [0, 1].map(|i| edit.at[i].abs_diff(at[i])));
        let number = number.parse()?;
        let outcome = outcome.to_string();
        match nearest {
            Some(edit) => list.push(Edit { number, outcome, ..edit }),
            None => println!("{number:3} is no longer there: draw another list"),
        }
    }
    Ok((text.lines().next().unwrap_or_default().to_string(), list))
}

/// Writes the list beneath its head, which keeps the seed.
pub fn write(head: &str, list: &[Edit]) -> Result<()> {
    let rows: String = list.iter().map(|edit| edit.row() + "\n").collect();
    Ok(fs::write(LIST, format!("{head}\n{rows}"))?)
}

/// A number below `n`, by SplitMix64: the same draw wherever it is made.
fn random(state: &mut u64, n: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % n as u64) as usize
}

/// Draws the list. Edits that do not compile are left out, and others drawn for them.
pub fn draw(seed: u64) -> Result<()> {
    let mut state = seed;
    let mut all = Vec::new();
    for room in ROOMS.iter() {
        all.extend(queue(room, &mut state)?);
    }
    loop {
        let mut list: Vec<Edit> = Vec::new();
        for edit in &mut all {
            let of_room = list.iter().filter(|other| other.room.name == edit.room.name).count();
            let is_apart = list.iter().all(|other| !other.overlaps(edit));
            edit.number = 0;
            if of_room < edit.room.quota && is_apart {
                edit.number = list.len() + 1;
                list.push(edit.clone());
            }
        }
        let Err(said) = tests::compile(&list, &["check", "--lib", "--profile", "test"]) else {
            return write(&format!("# Drawn by seed {seed}: {COLUMNS}."), &list);
        };
        let wrong = uncompiled(&said.to_string())?;
        println!("{} of {} edits do not compile", wrong.len(), list.len());
        all.retain(|edit| !wrong.contains(&edit.number));
    }
}

/// A room's edits in the order in which they are taken. Its rules take turns, so that none of them
/// fills the quota; each then draws a place.
fn queue(room: &'static Room, state: &mut u64) -> Result<Vec<Edit>> {
    let mut by_rule: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
    let files = tests::tracked(room.folder)?;
    if files.is_empty() {
        return Err(format!("{} has no files: rooms.tsv names a folder that has moved", room.name).into());
    }
    for file in files {
        let is_rust = file.extension().is_some_and(|end| end == "rs");
        // What only tests or a feature compile.
        let is_apart = |name: &OsStr| name == "tests" || name == "mpi" || name == "example";
        if is_rust && !file.with_extension("").iter().any(is_apart) {
            for edit in rules::edits_of(room, &file)? {
                by_rule.entry(edit.rule).or_default().push(edit);
            }
        }
    }
    println!("{:10} {:5} places", room.name, by_rule.values().map(Vec::len).sum::<usize>());
    let mut queue = Vec::new();
    while queue.len() < 12 * room.quota && !by_rule.is_empty() {
        for edits in by_rule.values_mut() {
            queue.push(edits.swap_remove(random(state, edits.len())));
        }
        by_rule.retain(|_, edits| !edits.is_empty());
    }
    // Which rule is first must not always be the same.
    for i in (1..queue.len()).rev() {
        queue.swap(i, random(state, i + 1));
    }
    Ok(queue)
}

/// The numbers of the edits to which the compiler's errors belong, `path:line:column: error…`. Each
/// edit begins with its switch, on a new line: the last one before an error is the wrong one.
fn uncompiled(said: &str) -> Result<BTreeSet<usize>> {
    let mut wrong = BTreeSet::new();
    for error in said.lines().filter(|line| line.contains(": error")) {
        let [file, line, _] = parts(error, ':')?;
        let text = fs::read_to_string(tests::folder()?.join(file))?;
        let above: Vec<&str> = text.lines().take(line.parse()?).collect();
        let mut switches = above.iter().filter_map(|line| line.split_once("crate::mutant("));
        let (_, switch) = switches.next_back().ok_or(error)?;
        let [number, _] = parts(switch, ')')?;
        wrong.insert(number.parse()?);
    }
    if wrong.is_empty() { Err(said.into()) } else { Ok(wrong) }
}
