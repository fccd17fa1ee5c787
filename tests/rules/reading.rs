//! What the head of a file says about other files: those that it names are there, and a reading
//! order has all files of its folder.

use crate::ROOT;
use crate::sources::{entries, is_rust, rust_files, text};
use std::path::{Path, PathBuf};

/// What a file says of itself before its first line of code.
fn head(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.collect::<Vec<_>>().join(" ")
}

/// The sources that a head names in backticks, as in its reading order; `labNN` is any lab.
fn named(source: &str) -> Vec<String> {
    let head = head(source);
    let code = head.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        plain && name.ends_with(".rs") && !name.contains("labNN")
    };
    code.filter(is_name).map(str::to_string).collect()
}

/// Whose heads say in which order one reads.
const FOLDERS: [&str; 4] = ["src", "crates", "labs", ".ci"];

/// Whether a name is a file beside the one whose head has it, or in the checkout.
fn is_there(name: &str, file: &Path, root: &Path) -> bool {
    let folder = file.parent().unwrap();
    // A lab's reader looks from the lab's folder, and a module may have a folder of its own name.
    let from = [folder.to_path_buf(), file.with_extension(""), root.to_path_buf()];
    let above = folder.ancestors().take(3).map(PathBuf::from);
    from.into_iter().chain(above).any(|from| from.join(name).exists())
}

#[test]
fn the_files_that_a_head_names_are_there() {
    let root = Path::new(ROOT);
    let mut missing = Vec::new();
    let mut seen = Vec::new();
    for folder in FOLDERS {
        for file in rust_files(&root.join(folder)) {
            for name in named(&text(&file)) {
                if !is_there(&name, &file, root) {
                    missing.push(format!("{}: {name}", file.display()));
                }
                seen.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "files that are not there:\n{}", missing.join("\n"));
    assert!(seen.iter().any(|name| name == "recorder.rs"), "no head");
}

/// The modules of a file whose head has a reading order, if that lacks them. The files of a folder
/// are the modules of one: of `mod.rs`, of the crate's first file, or of the one with its name.
fn in_no_order(file: &Path) -> Vec<PathBuf> {
    let head = head(&text(file));
    if !head.to_lowercase().contains("reading order") {
        return Vec::new();
    }
    let firsts = ["mod.rs", "lib.rs", "main.rs"];
    let folder = match firsts.iter().any(|first| file.ends_with(first)) {
        true => file.parent().unwrap().to_path_buf(),
        false => file.with_extension(""),
    };
    let mentions = |name: &str| {
        let mut code = head.split('`').skip(1).step_by(2);
        code.any(|code| code.split('/').any(|part| part.trim_end_matches(".rs") == name))
    };
    let is_module = |path: &PathBuf| {
        let own = if path.is_dir() {
            path.join("mod.rs")
        } else {
            path.clone()
        };
        let is_first = firsts.iter().any(|first| path.ends_with(first));
        own.is_file() && is_rust(&own) && !is_first
    };
    let modules = entries(&folder).into_iter().filter(is_module);
    modules
        .filter(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            !["tests", "build"].contains(&name) && !mentions(name)
        })
        .collect()
}

#[test]
fn a_reading_order_has_all_files_of_its_folder() {
    let root = Path::new(ROOT);
    let mut lacking = Vec::new();
    for folder in FOLDERS {
        for file in rust_files(&root.join(folder)) {
            for module in in_no_order(&file) {
                lacking.push(format!("{}: {}", file.display(), module.display()));
            }
        }
    }
    assert!(lacking.is_empty(), "reading orders that lack a file:\n{}", lacking.join("\n"));
}

#[test]
fn a_file_in_no_reading_order_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, source: &str| {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, source).unwrap();
    };
    for file in ["a.rs", "b/mod.rs", "b/c.rs", "data/table.toml", "tests.rs"] {
        write(file, "");
    }
    let lacks = |file: &str| -> Vec<String> {
        let found = in_no_order(&folder.path().join(file)).into_iter();
        found.map(|path| path.file_name().unwrap().to_str().unwrap().into()).collect()
    };
    write("lib.rs", "//! Reading order: `a.rs` (one),\n//! `b/` (another).\n");
    assert!(lacks("lib.rs").is_empty());
    write("lib.rs", "//! In reading order: `b/c.rs`.\n// `a.rs`\n");
    assert_eq!(lacks("lib.rs"), ["a.rs"]);
    write("lib.rs", "//! Says nothing of `b`.\n");
    assert!(lacks("lib.rs").is_empty());
    // The file that has its folder's name.
    write("b.rs", "//! Reading order: this file.\n");
    assert_eq!(lacks("b.rs"), ["c.rs"]);
}

#[test]
fn a_head_names_sources() {
    let source =
        "//! Reads `a.rs`, `b/c.rs` and\n//! `d.txt`; `x::y`, `lab*.rs`.\nfn f() {} // `e.rs`\n";
    assert_eq!(named(source), ["a.rs", "b/c.rs"]);
    assert!(!is_there("a.rs", Path::new("/nowhere/at/all.rs"), Path::new("/nowhere")));
}
