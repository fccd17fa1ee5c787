//! The project's sources, as texts.

use std::path::{Path, PathBuf};

pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What lies in `folder`, in the order of names.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

pub fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// All Rust files in `folder`, however deep.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in entries(folder) {
        if path.is_dir() {
            found.extend(rust_files(&path));
        } else if is_rust(&path) {
            found.push(path);
        }
    }
    found
}

/// The source without its modules of tests.
pub fn without_tests(source: &str) -> String {
    let mut own = String::new();
    let mut in_tests = false;
    let mut cfg_test = false;
    for line in source.lines() {
        if cfg_test && line.starts_with("mod ") && line.ends_with('{') {
            in_tests = true;
        }
        cfg_test = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        if !in_tests {
            own += line;
            own.push('\n');
        }
        if in_tests && line == "}" {
            in_tests = false;
        }
    }
    own
}
