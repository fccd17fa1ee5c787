//! What a Rust file takes from which module, read from its text: for the tests of rooms and of
//! sibling files.

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

/// The code without comments, in one line; spaces only between words.
pub fn code(source: &str) -> String {
    let lines = source.lines().map(|line| line.split("//").next().unwrap());
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut code = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for mark in ["::", "{", "}", ","] {
        code = code.replace(&format!(" {mark}"), mark);
        code = code.replace(&format!("{mark} "), mark);
    }
    code
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

pub fn first_name(text: &str) -> &str {
    text.split(|c| !is_of_a_name(c)).next().unwrap()
}

/// The paths at the beginning of `rest`, written out: `a::c` and `b::D` of `{a::c,b::{self,D}}`,
/// and `b`.
pub fn paths(rest: &str) -> Vec<String> {
    let Some(list) = rest.strip_prefix('{') else {
        let name = first_name(rest);
        let Some(deeper) = rest[name.len()..].strip_prefix("::") else {
            return vec![name.to_string()];
        };
        let deeper = paths(deeper).into_iter().map(|path| match path.as_str() {
            "" | "self" => name.to_string(),
            path => format!("{name}::{path}"),
        });
        return deeper.collect();
    };
    let mut found = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (i, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                found.extend(paths(&list[start..i]));
                start = i + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    found
}

/// The paths that `code` takes from the module with the path `root`, such as `crate::comm::` or
/// `super::`: `a::c` and `b` of `root::{a::c, b}`.
pub fn taken_paths(code: &str, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(root) {
        let before = &code[..at];
        let rest = &code[at + root.len()..];
        let begins = !before.ends_with(is_of_a_name) && !before.ends_with("::");
        if begins && !rest.starts_with("super::") {
            found.extend(paths(rest));
        }
    }
    found
}

/// The first names of these paths.
pub fn taken(code: &str, root: &str) -> Vec<String> {
    let paths = taken_paths(code, root);
    paths.iter().map(|path| first_name(path).to_string()).collect()
}
