//! What the head of a file says about other files: those that it names are there.

use crate::ROOT;
use crate::sources::{rust_files, text};
use std::path::{Path, PathBuf};

/// The sources that a head names in backticks, as in its reading order; `labNN` is any lab.
fn named(source: &str) -> Vec<String> {
    let head = source.lines().map_while(|line| line.strip_prefix("//!"));
    let head: String = head.collect::<Vec<_>>().join(" ");
    let code = head.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        plain && name.ends_with(".rs") && !name.contains("labNN")
    };
    code.filter(is_name).map(str::to_string).collect()
}

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
    for folder in ["src", "crates", "labs"] {
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

#[test]
fn a_head_names_sources() {
    let source =
        "//! Reads `a.rs`, `b/c.rs` and\n//! `d.txt`; `x::y`, `lab*.rs`.\nfn f() {} // `e.rs`\n";
    assert_eq!(named(source), ["a.rs", "b/c.rs"]);
    assert!(!is_there("a.rs", Path::new("/nowhere/at/all.rs"), Path::new("/nowhere")));
}
