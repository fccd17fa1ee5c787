//! The library's rooms: the table in `src/lib.rs` has them in order, and each knows only rooms above it.

use crate::suite::program::ROOT;
use std::path::{Path, PathBuf};

const SRC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../src");

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The rooms of the table in `src/lib.rs`, in its order.
fn rooms() -> Vec<String> {
    let rows = text(&Path::new(SRC).join("lib.rs"));
    let names = rows.lines().filter_map(|line| {
        Some(
            line.strip_prefix("//! | [`")?
                .split_once("`]")?
                .0
                .to_string(),
        )
    });
    names.collect()
}

/// All Rust files in `folder`, however deep, seen from there.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
        .iter()
        .map(|path| path.strip_prefix(SRC).unwrap().to_path_buf())
        .collect()
}

/// The code without comments, in one line; spaces only between words.
fn code(source: &str) -> String {
    let lines: Vec<&str> = source
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect();
    let mut code = lines
        .join(" ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for mark in ["::", "{", "}", ","] {
        code = code
            .replace(&format!(" {mark}"), mark)
            .replace(&format!("{mark} "), mark);
    }
    code
}

/// The names that follow `root` in a path or a list of paths: `a` and `b` of `root::{a::c, b}`.
fn named<'a>(code: &'a str, root: &str) -> Vec<&'a str> {
    let name = |text: &'a str| {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap()
    };
    let starts = code
        .match_indices(root)
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'));
    let mut found = Vec::new();
    for (at, _) in starts {
        let rest = &code[at + root.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(name(rest));
            continue;
        };
        let mut depth = 0;
        let mut start = 0;
        for (i, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    found.push(name(&list[start..i]));
                    start = i + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// The rooms below its own that a file uses.
fn upward(file: &Path, source: &str, rooms: &[String]) -> Vec<String> {
    let mut module: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
    let last = module.pop().unwrap();
    module.extend(last.strip_suffix(".rs").filter(|&name| name != "mod"));
    let Some(own) = rooms.iter().position(|room| room == module[0]) else {
        return Vec::new();
    };
    let code = code(source);
    let mut used = named(&code, "crate::");
    used.extend(named(&code, &"super::".repeat(module.len())));
    rooms[own + 1..]
        .iter()
        .filter(|room| used.contains(&room.as_str()))
        .cloned()
        .collect()
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
    for file in files(Path::new(SRC)) {
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
    assert_eq!(
        finds("comm/link.rs", "use crate::train::Checks;"),
        ["train"]
    );
    assert_eq!(
        finds(
            "comm/mpi/world.rs",
            "fn f() { crate::{units::{a, b},\n  model}::x }"
        ),
        ["model"]
    );
    assert_eq!(
        finds("comm/mpi/world.rs", "use super::super::super::data;"),
        ["data"]
    );
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

/// The public types that a file declares, tests aside.
fn types(source: &str) -> Vec<&str> {
    let own = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let declared = own.lines().filter_map(|line| line.strip_prefix("pub "));
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
    for file in files(Path::new(SRC)) {
        let room = file.iter().next().unwrap().to_str().unwrap();
        let room = room.trim_end_matches(".rs").to_string();
        for name in types(&text(&Path::new(SRC).join(&file))) {
            let rooms = rooms_of.entry(name.to_string()).or_default();
            if !rooms.contains(&room) {
                rooms.push(room.clone());
            }
        }
    }
    assert!(
        rooms_of.len() > 200,
        "only {} types were found",
        rooms_of.len()
    );
    let shared: Vec<_> = rooms_of
        .iter()
        .filter(|(_, rooms)| rooms.len() > 1)
        .collect();
    assert!(shared.is_empty(), "{shared:?}");
    assert_eq!(
        types(
            "pub struct A;\npub(crate) struct B;\npub unsafe trait C {}\n#[cfg(test)]\nmod tests {\npub struct D;"
        ),
        ["A", "C"]
    );
}

/// The floor of each package, from the library up. A package depends only on floors below its own.
const FLOORS: [&[&str]; 6] = [
    &["shardlab"],
    &["kit"],
    &["ds_to_universal"],
    &[
        "lab00", "lab01", "lab02", "lab03", "lab04", "lab05", "lab06", "lab07", "lab08", "lab09",
        "lab10", "lab11",
    ],
    &["book"],
    &["launch", "memory", "scaling", "workbook"],
];

/// Which packages of ours a package depends on, tests aside.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap().keys();
    dependencies
        .filter(|name| FLOORS.concat().contains(&name.as_str()))
        .cloned()
        .collect()
}

#[test]
fn a_package_depends_only_on_floors_below_its_own() {
    let root = Path::new(ROOT);
    let folder = |name: &str| match name {
        "shardlab" => root.to_path_buf(),
        name if name == "kit" || name.starts_with("lab") => root.join("labs").join(name),
        name => root.join("labs/tools").join(name),
    };
    for (floor, packages) in FLOORS.into_iter().enumerate() {
        for package in packages {
            let used = dependencies(&text(&folder(package).join("Cargo.toml")));
            let below = FLOORS[..floor].concat();
            let wrong: Vec<&String> = used
                .iter()
                .filter(|name| !below.contains(&name.as_str()))
                .collect();
            assert!(wrong.is_empty(), "{package} depends on {wrong:?}");
        }
    }
    assert_eq!(
        dependencies("[dependencies]\nlab05.workspace = true\nserde = \"1\"\n"),
        ["lab05"]
    );
}

#[test]
fn the_files_that_the_readme_names_are_there() {
    let root = Path::new(ROOT);
    let readme = text(&root.join("README.md"));
    let links = readme
        .split("](")
        .skip(1)
        .map(|rest| rest.split([')', '#']).next().unwrap());
    let here: Vec<&str> = links
        .filter(|link| !link.is_empty() && !link.contains("://"))
        .collect();
    let missing: Vec<&&str> = here
        .iter()
        .filter(|link| !root.join(link).exists())
        .collect();
    assert!(
        here.len() > 20 && missing.is_empty(),
        "README.md names {missing:?}"
    );
}
