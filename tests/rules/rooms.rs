//! The library's rooms: the table in `src/lib.rs` has them in order, and each knows only rooms
//! above it. What a lesson may know.

use crate::ROOT;
use crate::imports::Paths;
use crate::packages::{labs, packages};
use crate::sources::{rust_files, text, without_tests};
use std::path::{Path, PathBuf};

const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../src");

/// The rooms of the table in `src/lib.rs`, in its order.
fn rooms() -> Vec<String> {
    let rows = text(&Path::new(SRC).join("lib.rs"));
    let names = rows
        .lines()
        .filter_map(|line| Some(line.strip_prefix("//! | [`")?.split_once("`]")?.0.to_string()));
    names.collect()
}

/// The library's files, seen from its folder.
fn files() -> Vec<PathBuf> {
    let found = rust_files(Path::new(SRC)).into_iter();
    found.map(|path| path.strip_prefix(SRC).unwrap().to_path_buf()).collect()
}

/// The rooms below its own that a file uses.
fn upward(file: &Path, source: &str, rooms: &[String]) -> Vec<String> {
    let mut module: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
    let last = module.pop().unwrap();
    module.extend(last.strip_suffix(".rs").filter(|&name| name != "mod"));
    let Some(own) = rooms.iter().position(|room| room == module[0]) else {
        return Vec::new();
    };
    let paths = Paths::of(source);
    let mut used = paths.below("crate::");
    used.extend(paths.below(&"super::".repeat(module.len())));
    let is_used = |room: &&String| used.iter().any(|path| path.split("::").next() == Some(room));
    rooms[own + 1..].iter().filter(is_used).cloned().collect()
}

#[test]
fn the_table_names_every_room_once() {
    let mut rooms = rooms();
    let library = text(&Path::new(SRC).join("lib.rs"));
    let mut modules: Vec<&str> = library
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    rooms.sort();
    modules.sort();
    assert_eq!(rooms, modules, "the table in src/lib.rs, and its modules");
}

#[test]
fn a_room_knows_only_rooms_above_it() {
    let rooms = rooms();
    let mut wrong = Vec::new();
    for file in files() {
        for room in upward(&file, &text(&Path::new(SRC).join(&file)), &rooms) {
            wrong.push(format!(
                "src/{} uses {room}, which the table in src/lib.rs has below it",
                file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_arrow_to_a_room_below_is_found_in_every_form() {
    let rooms = rooms();
    let finds = |file: &str, source: &str| upward(Path::new(file), source, &rooms);
    assert_eq!(finds("comm/link.rs", "use crate::train::Checks;"), ["train"]);
    assert_eq!(
        finds("comm/mpi/world.rs", "fn f() { crate::{units::{a, b},\n  model}::x }"),
        ["model"]
    );
    assert_eq!(finds("comm/mpi/world.rs", "use super::super::super::data;"), ["data"]);
    assert_eq!(finds("simd.rs", "use super::data;"), ["data"]);
    assert!(
        finds(
            "comm/link.rs",
            "use super::launch; // crate::train\n/// crate::data\nmod my { crate::units::a }"
        )
        .is_empty()
    );
    assert!(finds("train/flags.rs", "use crate::comm; use mycrate::units;").is_empty());
}

/// The public types that a source declares.
fn types(source: &str) -> Vec<&str> {
    let declared = source.lines().filter_map(|line| line.strip_prefix("pub "));
    let mut found = Vec::new();
    for line in declared {
        let line = line.strip_prefix("unsafe ").unwrap_or(line);
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if ["struct", "enum", "trait", "type"].contains(&words.next().unwrap()) {
            found.extend(words.next());
        }
    }
    found
}

#[test]
fn no_two_rooms_have_types_of_one_name() {
    let mut rooms_of = std::collections::BTreeMap::<String, Vec<String>>::new();
    for file in files() {
        let room = file.iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs").to_string();
        let source = without_tests(&text(&Path::new(SRC).join(&file)));
        for name in types(&source) {
            let rooms = rooms_of.entry(name.to_string()).or_default();
            if !rooms.contains(&room) {
                rooms.push(room.clone());
            }
        }
    }
    assert_eq!(rooms_of["Comm"], ["comm"]);
    let shared: Vec<_> = rooms_of.iter().filter(|(_, rooms)| rooms.len() > 1).collect();
    assert!(shared.is_empty(), "{shared:?}");
    let source = "pub struct A;\npub(crate) struct B;\npub unsafe trait C {}\n";
    let tests = "#[cfg(test)]\nmod tests {\npub struct D;\n}\n";
    assert_eq!(types(&without_tests(&format!("{source}{tests}"))), ["A", "C"]);
}

/// What a lesson's file has that is not the lesson.
fn beside_the_lesson(source: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let own = without_tests(source);
    let introduction = own.lines().filter(|line| line.starts_with("//!")).count();
    if introduction > 8 {
        wrong.push(format!("{introduction} lines of //!, of at most 8"));
    }
    let heart = own.lines().position(|line| line.trim() == "// ANCHOR: heart");
    if heart.is_none_or(|before| before >= 30) {
        let begins =
            heart.map_or("nowhere".to_string(), |before| format!("in line {}", before + 1));
        wrong.push(format!("its heart begins {begins}, and it should by line 30"));
    }
    let lines = own.lines().count();
    if lines > 180 {
        wrong.push(format!("{lines} lines, of at most 180"));
    }
    let paths = Paths::of(&own);
    for path in &paths.uses {
        let package = path.split("::").next().unwrap();
        let known = ["std", "anyhow", "candle_core", "candle_nn", "shardlab", "super", "crate"];
        if !known.contains(&package) && path != "kit::Beside" {
            wrong.push(format!("it uses {path}"));
        }
    }
    for package in ["kit", "clap"] {
        for path in paths.below(&format!("{package}::")) {
            if (package, path.split("::").next().unwrap()) != ("kit", "Beside") {
                wrong.push(format!("it uses {package}::{path}"));
            }
        }
    }
    // Of its own lab only types of data: no function, and no module in which functions are.
    for root in ["super::", "crate::"] {
        for path in paths.below(root) {
            if !path.split("::").any(|name| name.starts_with(char::is_uppercase)) {
                wrong.push(format!("it uses {root}{path}, which is no type"));
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

#[test]
fn a_lesson_is_the_lesson() {
    let packages = packages();
    let mut wrong = Vec::new();
    for lab in labs(&packages) {
        let lesson = lab.join("lesson.rs");
        for what in beside_the_lesson(&text(&Path::new(ROOT).join(&lesson))) {
            wrong.push(format!("{}: {what}", lesson.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nflags, screens and what runs in which order are in the lab's other files",
        wrong.join("\n")
    );
}

#[test]
fn what_is_not_the_lesson_is_found_in_every_form() {
    let with = |before: &str, inside: &str| {
        beside_the_lesson(&format!("{before}// ANCHOR: heart\n{inside}// ANCHOR_END: heart\n"))
    };
    let uses = "use super::{Config, apparatus::Job};\nuse anyhow::Result;\nuse kit::Beside;\n";
    let body = "fn f(config: &Config) {\n    super::Config::new();\n    kit::Beside::of();\n}\n";
    let tests = "#[cfg(test)]\nmod tests {\n    use clap::Parser;\n}\n";
    assert_eq!(with(uses, &format!("{body}{tests}")), Vec::<String>::new());
    assert_eq!(with("use clap::Parser;\n", ""), ["it uses clap::Parser"]);
    assert_eq!(with("use kit::{Beside, Clock};\n", ""), ["it uses kit::Clock"]);
    assert_eq!(with("pub use serde::Serialize;\n", ""), ["it uses serde::Serialize"]);
    assert_eq!(
        with("", "fn f() { kit::show::Screen::new() }\n"),
        ["it uses kit::show::Screen::new"]
    );
    let function = ["it uses super::apparatus::measure, which is no type"];
    assert_eq!(with("use super::{Config, apparatus::measure};\n", ""), function);
    assert_eq!(with("", "fn f() { super::apparatus::measure() }\n"), function);
    assert_eq!(with(&"//! a\n".repeat(9), "").len(), 1);
    assert_eq!(with(&"// a\n".repeat(29), ""), Vec::<String>::new());
    assert_eq!(with(&"// a\n".repeat(30), "").len(), 1);
    assert_eq!(beside_the_lesson("fn f() {}\n").len(), 1, "no heart");
    assert_eq!(with("", &"fn f() {}\n".repeat(179)).len(), 1);
}

/// A heading's anchor, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading
        .chars()
        .filter(|&c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn the_files_that_the_readme_names_are_there() {
    let root = Path::new(ROOT);
    let readme = text(&root.join("README.md"));
    let links = readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    let here: Vec<&str> = links.filter(|link| !link.contains("://")).collect();
    let mut missing = Vec::new();
    for link in &here {
        let (file, place) = link.split_once('#').unwrap_or((link, ""));
        let file = root.join(if file.is_empty() { "README.md" } else { file });
        let leads = file.exists()
            && (place.is_empty()
                || text(&file).lines().any(|line| line.starts_with('#') && anchor(line) == place));
        if !leads {
            missing.push(*link);
        }
    }
    assert!(
        here.contains(&"CONTRIBUTING.md") && missing.is_empty(),
        "README.md has the links {here:?}, and these lead nowhere: {missing:?}"
    );
}
