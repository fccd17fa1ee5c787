//! Small wrong edits of the library, made by rule, and the tests that notice them.
//!
//! `draw SEED` finds each place of each rule in the rooms' files, draws a quota for every room,
//! leaves out what does not compile, and writes `list.tsv`. `run` compiles all edits of the list at
//! once, in a copy of the checkout, each behind a switch (the variable `MUTANT`), and starts the
//! room's tests for one after the other. The list then has the outcomes, and keeps why some
//! survive: whoever finds out writes it there. `run 3 9` runs two of them, and writes nothing.

mod edits;
mod tests;

use edits::Edit;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Name, package, folder, edits to draw; unit tests; modules of tests/all whose ranks are threads.
const ROOMS: &str = "
comm shardlab src/comm 8; comm::; collectives:: algorithms:: link:: late:: recorded_orders::
parallel shardlab src/parallel 12; parallel::; zero:: ddp:: tensor:: pipeline:: context::
optim shardlab src/optim 6; optim:: parallel::norm; zero:: golden::
train shardlab src/train 8; train::; training:: bad_steps:: golden:: context:: checkpoints::
checkpoint shardlab src/checkpoint 8; checkpoint::; checkpoints:: universal::
tensor shardlab src/tensor 8; tensor::; operations:: llama:: golden::
bf16 bf16-products bf16 4; ;
deepspeed deepspeed labs/deepspeed 8; ;
lab12 lab12 labs/lab12/apparatus 4; ;
";

struct Room {
    name: &'static str,
    package: &'static str,
    folder: &'static str,
    quota: usize,
    units: Vec<&'static str>,
    modules: Vec<&'static str>,
}

fn rooms() -> Vec<Room> {
    let room = |line: &'static str| {
        let mut parts = line.split(';').map(|part| part.split_whitespace().collect::<Vec<_>>());
        let mut part = || parts.next().unwrap_or_default();
        let (first, units, modules) = (part(), part(), part());
        let [name, package, folder, quota] = first[..] else {
            panic!("a room is {line:?}")
        };
        Room {
            name,
            package,
            folder,
            quota: quota.parse().expect(line),
            units,
            modules,
        }
    };
    ROOMS.trim().lines().map(room).collect()
}

/// An edit of the list, where it is now; its number, and its room's.
struct Listed {
    number: usize,
    room: usize,
    edit: Edit,
    /// Whether tests noticed it in the last run, and which, or why none does.
    before: String,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> =
        words.iter().skip(1).map(|n| n.parse()).collect::<std::result::Result<_, _>>()?;
    match (words.first().map(String::as_str), &numbers[..]) {
        (Some("draw"), [seed]) => draw(*seed as u64),
        (Some("run"), only) => run(only),
        _ => Err("give `draw SEED`, `run`, or `run` with numbers of the list".into()),
    }
}

const LIST: &str = ".ci/mutants/list.tsv";

/// All files of the checkout.
fn tracked() -> Result<Vec<PathBuf>> {
    let git = Command::new("git")
        .arg("ls-files")
        .output()
        .map_err(|error| error.to_string())?;
    let mut all: Vec<PathBuf> =
        String::from_utf8_lossy(&git.stdout).lines().map(PathBuf::from).collect();
    all.sort();
    Ok(all)
}

/// All edits of a room's files, but for tests and what only a feature compiles.
fn edits_of(room: &Room) -> Result<Vec<Edit>> {
    let mut all = Vec::new();
    for file in tracked()?.iter().filter(|file| file.starts_with(room.folder)) {
        let apart = |name| ["tests", "mpi", "example"].contains(&name);
        let mut names = file.iter().filter_map(|name| name.to_str());
        if file.extension().is_some_and(|end| end == "rs")
            && !names.any(|name| apart(name.trim_end_matches(".rs")))
        {
            all.extend(edits::edits_of(file, &fs::read_to_string(file)?)?);
        }
    }
    Ok(all)
}

/// SplitMix64: the same draw wherever it is made.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// A room's edits in the order in which they are taken. Its rules take turns, so that none of them
/// fills the quota; each then draws a place.
fn queue(room: &Room, random: &mut Random) -> Result<Vec<Edit>> {
    let mut by_rule: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
    for edit in edits_of(room)? {
        by_rule.entry(edit.rule).or_default().push(edit);
    }
    println!("{:10} {:5} places", room.name, by_rule.values().map(Vec::len).sum::<usize>());
    let mut queue = Vec::new();
    while queue.len() < 12 * room.quota && !by_rule.is_empty() {
        for edits in by_rule.values_mut() {
            queue.push(edits.swap_remove(random.below(edits.len())));
        }
        by_rule.retain(|_, edits| !edits.is_empty());
    }
    // Which rule is first must not always be the same.
    for i in (1..queue.len()).rev() {
        queue.swap(i, random.below(i + 1));
    }
    Ok(queue)
}

/// Draws the list. Edits that do not compile are left out, and others drawn for them.
fn draw(seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let rooms = rooms();
    let queues: Vec<Vec<Edit>> =
        rooms.iter().map(|room| queue(room, &mut random)).collect::<Result<_>>()?;
    let mut bad = BTreeSet::new();
    loop {
        let mut list: Vec<Listed> = Vec::new();
        for (room, queue) in queues.iter().enumerate() {
            let first = list.len();
            for edit in queue.iter().cloned() {
                let apart = list.iter().all(|other| !other.edit.overlaps(&edit));
                if list.len() < first + rooms[room].quota && apart && !bad.contains(&edit.key()) {
                    list.push(Listed { number: list.len() + 1, room, edit, before: String::new() });
                }
            }
        }
        copy(&list)?;
        let packages = rooms.iter().map(|room| room.package);
        let wrong =
            uncompiled(&list, tests::cargo(packages, &["check", "--lib", "--profile", "test"])?)?;
        println!("{} edits, of which {} do not compile", list.len(), wrong.len());
        if wrong.is_empty() {
            let columns =
                "number, room, place, rule, old, new, outcome, what noticed it or why none";
            let mut text = format!("# Drawn by seed {seed}: {columns}.\n");
            for Listed { number, room, edit, .. } in &list {
                writeln!(text, "{number}\t{}\t{}", rooms[*room].name, edit.key()).unwrap();
            }
            return Ok(fs::write(LIST, text)?);
        }
        bad.extend(wrong);
    }
}

/// The edits to which the compiler's errors belong, `path:line:column: error…`. Each edit begins
/// with its switch: the last one before an error is the wrong one.
fn uncompiled(list: &[Listed], (ok, said): (bool, String)) -> Result<BTreeSet<String>> {
    let mut bad = BTreeSet::new();
    for error in said.lines().filter(|line| line.contains(": error")) {
        let parts: Vec<&str> = error.split(':').collect();
        let [file, line, column, ..] = parts[..] else { continue };
        let line: usize = line.parse().unwrap_or(1);
        let text = fs::read_to_string(tests::copy().join(file))?;
        let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        let before = text.get(..start + column.parse().unwrap_or(0)).unwrap_or_default();
        let number = before.rsplit("crate::mutant(").next().and_then(|text| text.split(')').next());
        let number: usize = number.and_then(|number| number.parse().ok()).unwrap_or(0);
        let one = list.iter().find(|one| one.number == number).ok_or(error)?;
        bad.insert(one.edit.key());
    }
    if !ok && bad.is_empty() {
        Err(said.into())
    } else {
        Ok(bad)
    }
}

/// Copies the checkout, with each edit behind its switch. What does not change keeps its time, so
/// that it is not compiled again.
fn copy(list: &[Listed]) -> Result<()> {
    for file in tracked()? {
        let Ok(mut bytes) = fs::read(&file) else { continue };
        let mut edits: Vec<&Listed> = list.iter().filter(|one| one.edit.file == file).collect();
        edits.sort_by_key(|one| std::cmp::Reverse(one.edit.range.start));
        for Listed { number, edit, .. } in edits {
            bytes.splice(edit.range.clone(), edit.switched(*number).into_bytes());
        }
        if file.ends_with("lib.rs") && !file.starts_with("web") {
            bytes.extend_from_slice(include_bytes!("switch.rs"));
        }
        let to = tests::copy().join(&file);
        if fs::read(&to).ok().as_ref() != Some(&bytes) {
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::write(&to, &bytes)?;
        }
    }
    Ok(())
}

/// The list's edits, where they are now: at the nearest place of the same file with the same text.
fn listed(rooms: &[Room]) -> Result<Vec<Listed>> {
    let all: Vec<Vec<Edit>> = rooms.iter().map(edits_of).collect::<Result<_>>()?;
    let mut list = Vec::new();
    for row in fs::read_to_string(LIST)?.lines().filter(|row| !row.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [number, name, place, rule, old, new, before @ ..] = &columns[..] else {
            return Err(format!("{LIST} has a row {row:?}").into());
        };
        let parts: Vec<&str> = place.split(':').collect();
        let [file, line, column] = parts[..] else {
            return Err(format!("no place: {place}").into());
        };
        let at: [usize; 2] = [line.parse()?, column.parse()?];
        let room = rooms.iter().position(|room| room.name == *name).ok_or(*name)?;
        let same = |edit: &&Edit| {
            let texts = [edit.rule, &edit.old, &edit.new];
            edit.file == Path::new(file) && texts == [*rule, *old, *new]
        };
        let far = |edit: &&Edit| [0, 1].map(|i| edit.at[i].abs_diff(at[i]));
        let number = number.parse()?;
        let before = before.join("\t");
        match all[room].iter().filter(same).min_by_key(far).cloned() {
            Some(edit) => list.push(Listed { number, room, edit, before }),
            None => println!("{number:3} is no longer there: draw another list"),
        }
    }
    Ok(list)
}

/// Runs the list, prints the share that tests notice, and what is otherwise than in the list.
fn run(only: &[usize]) -> Result<()> {
    let rooms = rooms();
    let list = listed(&rooms)?;
    copy(&list)?;
    let programs = tests::build(&rooms)?;
    let text = fs::read_to_string(LIST)?;
    let mut text = format!("{}\n", text.lines().next().unwrap_or_default());
    let mut limits = BTreeMap::new();
    let mut counts: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for Listed { number, room, edit, before } in list {
        if !only.is_empty() && !only.contains(&number) {
            continue;
        }
        let Room { name, .. } = rooms[room];
        if !limits.contains_key(&room) {
            // Nothing may fail without an edit, and one that hangs gets thrice that time.
            let (found, seconds) = tests::noticed(&programs, &rooms[room], 0, 900.0)?;
            if let Some(test) = found {
                return Err(format!("{name} fails without an edit: {test}").into());
            }
            println!("{seconds:5.1} s  {name} without an edit");
            limits.insert(room, 3.0 * seconds + 20.0);
        }
        let (found, seconds) = tests::noticed(&programs, &rooms[room], number, limits[&room])?;
        let [caught, of] = counts.get(name).copied().unwrap_or_default();
        counts.insert(name, [caught + usize::from(found.is_some()), of + 1]);
        let after = match found {
            Some(test) => format!("caught\t{test}"),
            None if before.len() > 9 && before.starts_with("survives\t") => before.clone(),
            None => {
                unexplained.push(number.to_string());
                "survives".to_string()
            }
        };
        let row = format!("{number}\t{name}\t{}\t{after}", edit.key());
        let is_new = !before.is_empty() && before[..6] != after[..6];
        println!("{seconds:5.1} s  {row}{}", if is_new { ", which is new" } else { "" });
        text += &(row + "\n");
    }
    let all = counts.values().fold([0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
    for (name, [caught, of]) in counts.into_iter().chain([("all", all)]) {
        println!("{name:10} {caught:2} of {of:2} caught");
    }
    if only.is_empty() {
        fs::write(LIST, text)?;
    }
    if unexplained.is_empty() {
        return Ok(());
    }
    let help = format!("help: write a test, or into {LIST} why they change nothing");
    Err(format!("no test notices {}\n{help}", unexplained.join(", ")).into())
}
