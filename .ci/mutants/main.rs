//! Small wrong edits of the library, made by rule, and the tests that notice them.
//!
//! `draw SEED` finds every place of every rule in the rooms' files, draws a quota for each room,
//! leaves out what does not compile, and writes `list.tsv`. `run` compiles all edits of the list at
//! once, in a copy of the checkout, each behind a switch (the variable `MUTANT`), and starts the
//! room's tests once for each. The outcomes, and why some survive, are in `table.tsv`.

mod edits;
mod tests;

use edits::{Edit, edits_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Result<T> = std::result::Result<T, String>;

/// A part of the library: its package and files, how many edits are drawn, and its tests.
struct Room {
    name: &'static str,
    package: &'static str,
    folder: &'static str,
    quota: usize,
    /// Unit tests, and modules of the package `tests`, in which ranks are threads.
    units: &'static [&'static str],
    modules: &'static [&'static str],
}

const fn room(
    name: &'static str,
    folder: &'static str,
    quota: usize,
    units: &'static [&'static str],
    modules: &'static [&'static str],
) -> Room {
    Room { name, package: "shardlab", folder, quota, units, modules }
}

const ROOMS: [Room; 9] = [
    room(
        "comm",
        "src/comm",
        8,
        &["comm::"],
        &["collectives::", "algorithms::", "link::", "late::", "recorded_orders::"],
    ),
    room(
        "parallel",
        "src/parallel",
        12,
        &["parallel::"],
        &["zero::", "ddp::", "tensor::", "pipeline::", "context::"],
    ),
    room("optim", "src/optim", 6, &["optim::", "parallel::norm"], &["zero::", "golden::"]),
    room(
        "train",
        "src/train",
        8,
        &["train::"],
        &["training::", "bad_steps::", "golden::", "context::", "checkpoints::"],
    ),
    room("checkpoint", "src/checkpoint", 8, &["checkpoint::"], &["checkpoints::", "universal::"]),
    room("tensor", "src/tensor", 8, &["tensor::"], &["operations::", "llama::", "golden::"]),
    Room {
        name: "bf16",
        package: "bf16-products",
        folder: "bf16",
        quota: 4,
        units: &[],
        modules: &[],
    },
    Room {
        name: "deepspeed",
        package: "deepspeed",
        folder: "labs/deepspeed",
        quota: 8,
        units: &[],
        modules: &[],
    },
    Room {
        name: "lab12",
        package: "lab12",
        folder: "labs/lab12/apparatus",
        quota: 4,
        units: &[],
        modules: &[],
    },
];

/// An edit of the list, and the room that it is in.
#[derive(Clone)]
struct Listed {
    room: usize,
    edit: Edit,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["draw", seed] => match seed.parse() {
            Ok(seed) => draw(seed),
            Err(_) => Err(format!("{seed} is no seed")),
        },
        ["run"] => run(),
        _ => Err("give `draw SEED` or `run`".to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Rust files of a room, without its tests and what is compiled elsewhere.
fn files(folder: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{folder:?}: {error}"))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if ["tests", "mpi", "example", "exercises", "solutions", "checks"].contains(&&*name)
            && (path.is_dir() || ["tests", "mpi", "example"].contains(&&*name))
        {
            continue;
        }
        if path.is_dir() {
            files(&path, all)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
    Ok(())
}

/// All edits of a room, in the order of its files.
fn all_edits(room: &Room) -> Result<Vec<Edit>> {
    let mut paths = Vec::new();
    files(Path::new(room.folder), &mut paths)?;
    let mut all = Vec::new();
    for path in paths {
        let text = read(&path)?;
        all.extend(edits_of(&path, &text)?);
    }
    Ok(all)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
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

/// Draws the list. A room's rules take turns, so that none of them fills the quota; each then draws
/// a place. Edits that do not compile are left out, and others drawn for them.
fn draw(seed: u64) -> Result<()> {
    let mut random = Random(seed);
    let mut queues = Vec::new();
    for room in &ROOMS {
        let mut by_rule: BTreeMap<&str, Vec<Edit>> = BTreeMap::new();
        for edit in all_edits(room)? {
            by_rule.entry(edit.rule).or_default().push(edit);
        }
        let found: usize = by_rule.values().map(Vec::len).sum();
        println!("{:10} {found:5} places", room.name);
        let mut queue = Vec::new();
        while queue.len() < 12 * room.quota && !by_rule.is_empty() {
            let rules: Vec<&str> = by_rule.keys().copied().collect();
            for rule in rules {
                let of_rule = by_rule.get_mut(rule).unwrap();
                queue.push(of_rule.swap_remove(random.below(of_rule.len())));
                if of_rule.is_empty() {
                    by_rule.remove(rule);
                }
            }
        }
        // Which rule is first must not always be the same.
        for i in (1..queue.len()).rev() {
            queue.swap(i, random.below(i + 1));
        }
        queues.push(queue);
    }
    let mut bad = BTreeSet::new();
    loop {
        let mut list: Vec<Listed> = Vec::new();
        for (room, queue) in queues.iter().enumerate() {
            let mut taken = 0;
            for edit in queue {
                let apart = list.iter().all(|other| !other.edit.overlaps(edit));
                if taken < ROOMS[room].quota && apart && !bad.contains(&edit.key()) {
                    list.push(Listed { room, edit: edit.clone() });
                    taken += 1;
                }
            }
        }
        let wrong = compile(&list, &["check", "--lib"])?;
        println!("{} edits, of which {} do not compile", list.len(), wrong.len());
        if wrong.is_empty() {
            let mut text = format!("# Drawn by seed {seed}: number, room, place, rule, old, new.\n");
            for (i, Listed { room, edit }) in list.iter().enumerate() {
                writeln!(text, "{}\t{}\t{}", i + 1, ROOMS[*room].name, edit.key()).unwrap();
            }
            return write(Path::new(".ci/mutants/list.tsv"), &text);
        }
        bad.extend(wrong);
    }
}

/// The list's edits, where they are now: at their place, or at the nearest that has the same text.
fn listed() -> Result<Vec<(usize, Option<Listed>)>> {
    let mut all: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    let mut list = Vec::new();
    let text = read(Path::new(".ci/mutants/list.tsv"))?;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let wrong = || format!("list.tsv has a line {line:?}");
        let columns: Vec<&str> = line.split('\t').collect();
        let [number, name, place, rule, old, new] = columns[..] else { return Err(wrong()) };
        let number = number.parse().map_err(|_| wrong())?;
        let room = ROOMS.iter().position(|room| room.name == name).ok_or_else(wrong)?;
        let (file, at) = place.split_once(':').ok_or_else(wrong)?;
        let at: usize = at.split(':').next().and_then(|at| at.parse().ok()).ok_or_else(wrong)?;
        if !all.contains_key(&room) {
            all.insert(room, all_edits(&ROOMS[room])?);
        }
        let same = |edit: &&Edit| {
            edit.file == Path::new(file) && (edit.rule, &*edit.old, &*edit.new) == (rule, old, new)
        };
        let exact = all[&room].iter().find(|edit| same(edit) && edit.place() == place);
        let near = || all[&room].iter().filter(same).min_by_key(|edit| edit.line.abs_diff(at));
        let edit = exact.or_else(near).cloned();
        list.push((number, edit.map(|edit| Listed { room, edit })));
    }
    Ok(list)
}

/// The folder of the copy.
fn copy() -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    std::path::absolute(target).unwrap_or_default().join("mutants")
}

/// Copies the checkout with all edits behind switches, and compiles it. Returns the edits that do
/// not compile.
fn compile(list: &[Listed], cargo: &[&str]) -> Result<BTreeSet<String>> {
    let copy = copy();
    let numbered = list.iter().enumerate().map(|(i, one)| (i + 1, one));
    switched(&copy, numbered)?;
    let (ok, errors) = tests::cargo(&copy, &packages(cargo))?;
    if ok {
        return Ok(BTreeSet::new());
    }
    // `path:line:column: error…`
    let mut bad = BTreeSet::new();
    for error in errors.lines().filter(|line| line.contains(": error")) {
        let mut parts = error.split(':');
        let (Some(file), Some(line)) = (parts.next(), parts.next()) else { continue };
        let line: usize = line.parse().unwrap_or(0);
        let column: usize = parts.next().and_then(|text| text.parse().ok()).unwrap_or(0);
        let text = read(&copy.join(file)).unwrap_or_default();
        let start: usize = text.split_inclusive('\n').take(line.max(1) - 1).map(str::len).sum();
        // Each edit begins with its switch: the last one before the error is the wrong one.
        let before = text.get(..start + column).unwrap_or_default();
        let number = before.rsplit("crate::mutant(").next().and_then(|text| text.split(')').next());
        let number: Option<usize> = number.and_then(|text| text.parse().ok());
        let Some(one) = number.and_then(|number| list.get(number.wrapping_sub(1))) else {
            return Err(format!("the copy does not compile: {error}"));
        };
        bad.insert(one.edit.key());
    }
    if bad.is_empty() { Err(errors) } else { Ok(bad) }
}

/// Cargo's arguments for the packages of all rooms.
fn packages(cargo: &[&str]) -> Vec<String> {
    let mut arguments: Vec<String> = cargo.iter().map(|word| word.to_string()).collect();
    let names: BTreeSet<&str> = ROOMS.iter().map(|room| room.package).collect();
    arguments.extend(names.iter().flat_map(|name| ["-p".to_string(), name.to_string()]));
    arguments
}

/// Writes a copy of all tracked files, in which each edit is behind its switch.
fn switched<'a>(copy: &Path, list: impl Iterator<Item = (usize, &'a Listed)>) -> Result<()> {
    let tracked = Command::new("git").arg("ls-files").output().map_err(|error| error.to_string())?;
    let mut changed: BTreeMap<PathBuf, Vec<(usize, &Edit)>> = BTreeMap::new();
    for (number, one) in list {
        changed.entry(one.edit.file.clone()).or_default().push((number, &one.edit));
    }
    let crates = ["src/lib.rs", "bf16/lib.rs", "labs/deepspeed/lib.rs", "labs/lab12/lib.rs"];
    for file in String::from_utf8_lossy(&tracked.stdout).lines().map(Path::new) {
        let to = copy.join(file);
        let Ok(before) = std::fs::read(file) else { continue };
        let mut bytes = before;
        if let Some(edits) = changed.get_mut(file) {
            let mut text = String::from_utf8(bytes).map_err(|error| error.to_string())?;
            edits.sort_by_key(|(_, edit)| std::cmp::Reverse(edit.range.start));
            for (number, edit) in edits {
                let switched = edit.switched(*number);
                text.replace_range(edit.range.clone(), &switched);
            }
            bytes = text.into_bytes();
        }
        if crates.iter().any(|root| file == Path::new(root)) {
            bytes.extend_from_slice(include_bytes!("switch.rs"));
        }
        // What has not changed keeps its time, so that it is not compiled again.
        if std::fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let folder = to.parent().unwrap_or(copy);
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
        std::fs::write(&to, bytes).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

/// Runs the list, prints the share that tests notice, and compares with the table.
fn run() -> Result<()> {
    let list = listed()?;
    let here: Vec<(usize, &Listed)> =
        list.iter().filter_map(|(number, one)| Some((*number, one.as_ref()?))).collect();
    for (number, _) in list.iter().filter(|(_, one)| one.is_none()) {
        println!("{number:3} is no longer there: draw another list");
    }
    switched(&copy(), here.iter().copied())?;
    let programs = tests::build(&copy(), &packages(&["test", "--no-run", "--lib"]))?;
    let mut why: BTreeMap<usize, String> = BTreeMap::new();
    let table = Path::new(".ci/mutants/table.tsv");
    for line in read(table).unwrap_or_default().lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        if let [number, .., "survives", reason] = columns[..] {
            why.insert(number.parse().unwrap_or(0), reason.to_string());
        }
    }
    let only = std::env::var("MUTANTS_ONLY").unwrap_or_default();
    let chosen = |number: usize| only.is_empty() || only.split(',').any(|n| n == number.to_string());
    let mut limits = BTreeMap::new();
    let mut text = "# Number, room, place, edit, outcome, and which test noticed it or why none does.\n"
        .to_string();
    let mut of_room: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for (number, one) in here.into_iter().filter(|(number, _)| chosen(*number)) {
        let room = &ROOMS[one.room];
        if !limits.contains_key(&one.room) {
            // Nothing may fail without an edit, and a hanging edit gets thrice that time.
            let (outcome, seconds) = tests::noticed(&programs, room, 0, 900.0)?;
            if let Some(test) = outcome {
                return Err(format!("{} fails without an edit: {test}", room.name));
            }
            println!("{:10} {seconds:5.1} s without an edit", room.name);
            limits.insert(one.room, 3.0 * seconds + 20.0);
        }
        let (outcome, seconds) = tests::noticed(&programs, room, number, limits[&one.room])?;
        let counts = of_room.entry(room.name).or_default();
        counts[1] += 1;
        counts[0] += usize::from(outcome.is_some());
        let (outcome, note) = match outcome {
            Some(test) => ("caught", test),
            None => ("survives", why.remove(&number).unwrap_or_default()),
        };
        if outcome == "survives" && note.is_empty() {
            unexplained.push(number.to_string());
        }
        let edit = &one.edit;
        let row = format!(
            "{number}\t{}\t{}\t{} => {}\t{outcome}\t{note}\n",
            room.name,
            edit.place(),
            edit.old,
            edit.new
        );
        print!("{seconds:5.1} s  {row}");
        text += &row;
    }
    for (room, [caught, all]) in &of_room {
        println!("{room:10} {caught:2} of {all:2} caught");
    }
    let sum = |i: usize| of_room.values().map(|counts| counts[i]).sum::<usize>();
    println!("{:10} {:2} of {:2} caught", "all", sum(0), sum(1));
    if only.is_empty() {
        write(table, &text)?;
    }
    if unexplained.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no test notices {}: write one, or write into table.tsv why they change nothing",
        unexplained.join(", ")
    ))
}
