//! Files of one folder form no circle: a reader of one goes on to those that it uses, and never
//! comes back to it.
//!
//! A folder's files are the modules of one parent (`mod.rs`, `lib.rs`, or the file that has the
//! folder's name). A folder inside counts as one of them. The parent is left out: it may name its
//! children, and they may use what it has. Tests inside a file are left out, too.

use crate::imports::{
    code, entries, first_name, heads, is_rust, rust_files, taken, text, without_tests,
};
use crate::suite::program::ROOT;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files of each module in a folder.
type Modules = BTreeMap<String, Vec<PathBuf>>;
/// Which of its siblings a module uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// The modules in a folder, without their parent.
fn modules(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    for path in entries(folder) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let is_parent = ["mod", "lib", "main"].contains(&name.as_str());
        if path.is_dir() {
            modules.entry(name).or_default().extend(rust_files(&path));
        } else if is_rust(&path) && !is_parent {
            modules.entry(name).or_default().push(path);
        }
    }
    modules
}

/// Names that the folder's parent re-exports, with the child that each comes from.
fn exported(folder: &Path, modules: &Modules) -> BTreeMap<String, String> {
    let files = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
    let mut exported = BTreeMap::new();
    for parent in files.iter().filter(|file| file.exists()) {
        let code = code(&without_tests(&text(parent)));
        for (at, _) in code.match_indices("pub use ") {
            let path = code[at + "pub use ".len()..].trim_start_matches("self::");
            let child = first_name(path);
            if let Some(names) = path[child.len()..].strip_prefix("::")
                && modules.contains_key(child)
            {
                for name in heads(names) {
                    exported.insert(name.to_string(), child.to_string());
                }
            }
        }
    }
    exported
}

/// Which modules of a folder use which. `root` is the folder of the crate.
fn arrows(folder: &Path, root: &Path) -> Arrows {
    let modules = modules(folder);
    let exported = exported(folder, &modules);
    let mut absolute = "crate::".to_string();
    for part in folder.strip_prefix(root).unwrap() {
        absolute += &format!("{}::", part.to_str().unwrap());
    }
    let mut arrows = Arrows::new();
    for (module, files) in &modules {
        let used = arrows.entry(module.clone()).or_default();
        for file in files.iter().filter(|file| !is_test(file)) {
            let inside = file.strip_prefix(folder).unwrap().iter().count();
            let is_parent = file.file_name().is_some_and(|name| name == "mod.rs");
            let relative = "super::".repeat(inside - usize::from(is_parent));
            let code = code(&without_tests(&text(file)));
            let mut names = taken(&code, &relative);
            names.extend(taken(&code, &absolute));
            for name in names {
                let of = if modules.contains_key(name) {
                    Some(name)
                } else {
                    exported.get(name).map(String::as_str)
                };
                used.extend(of.filter(|&of| of != module).map(str::to_string));
            }
        }
    }
    arrows
}

/// Tests in files of their own: `tests.rs`, or a folder `tests`.
fn is_test(file: &Path) -> bool {
    let named = |name: &str| file.file_stem().is_some_and(|stem| stem == name);
    named("tests") || file.iter().any(|part| part == "tests")
}

/// All that `from` uses, directly and over others.
fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_string()];
    while let Some(module) = next.pop() {
        for used in arrows.get(&module).into_iter().flatten() {
            if found.insert(used.clone()) {
                next.push(used.clone());
            }
        }
    }
    found
}

/// The modules that use themselves over others.
fn in_circles(arrows: &Arrows) -> Vec<String> {
    let comes_back = |module: &&String| reached(arrows, module).contains(*module);
    arrows.keys().filter(comes_back).cloned().collect()
}

fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    for path in entries(folder).into_iter().filter(|path| path.is_dir()) {
        found.extend(folders_below(&path));
    }
    found
}

/// The folders of the crates that are read here: the library, kit, the labs and the tools.
fn crates() -> Vec<PathBuf> {
    // Its own path goes through the tests' folder.
    let root = Path::new(ROOT).canonicalize().unwrap();
    let mut crates = vec![root.join("src"), root.join("labs/kit")];
    crates.extend(entries(&root.join("labs")).into_iter().map(|lab| lab.join("apparatus")));
    crates.extend(entries(&root.join("labs/tools")));
    crates.retain(|folder| folder.is_dir());
    crates
}

#[test]
fn siblings_form_no_circle() {
    let mut wrong = Vec::new();
    let mut drawn = 0;
    for root in crates() {
        for folder in folders_below(&root) {
            let arrows = arrows(&folder, &root);
            drawn += arrows.values().map(BTreeSet::len).sum::<usize>();
            let circle = in_circles(&arrows);
            for module in &circle {
                let others = arrows[module].iter().filter(|other| circle.contains(other));
                let others: Vec<&str> = others.map(String::as_str).collect();
                wrong.push(format!("{}: {module} uses {}", folder.display(), others.join(", ")));
            }
        }
    }
    assert!(drawn > 300, "only {drawn} arrows were found");
    assert!(
        wrong.is_empty(),
        "{}\nmove what both need into the lower file, or into one of its own",
        wrong.join("\n")
    );
}

#[test]
fn a_circle_is_found_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let room = folder.path().join("room");
    let write = |file: &str, source: &str| {
        let path = room.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, source).unwrap();
    };
    let circle = || in_circles(&arrows(&room, folder.path()));
    write("mod.rs", "mod a;\nmod b;\nmod c;\npub use b::{Beta, beta as other};\n");
    write("a.rs", "use super::b::Beta;\nfn f() {}\n");
    write("b.rs", "// use super::a;\nuse super::super::a;\n");
    write("c.rs", "#[cfg(test)]\nmod tests {\n    use super::super::a;\n}\n");
    assert!(circle().is_empty(), "{:?}", circle());
    write("b.rs", "fn g() { super::a::f() }\n");
    assert_eq!(circle(), ["a", "b"], "a path in code");
    write("b.rs", "use crate::room::{\n    a::f,\n    c,\n};\n");
    assert_eq!(circle(), ["a", "b"], "a list");
    write("b.rs", "use super::c::x;\n");
    write("c/mod.rs", "mod deep;\n");
    write("c/deep.rs", "use super::super::Beta;\n");
    assert_eq!(circle(), ["b", "c"], "a re-exported name, from a folder");
}
