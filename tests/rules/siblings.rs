//! Files of one folder form no circle: a reader of one goes on to those that it uses, and never
//! comes back to it.
//!
//! A folder's files are the modules of one parent (`mod.rs`, `lib.rs`, or the file that has the
//! folder's name). A folder inside counts as one of them. The parent is left out: it may name its
//! children, and they may use what it has. Tests inside a file are left out, too.
//!
//! A lab's `apparatus` is no room of its own but the shelf for the rest of the lab, so its files
//! are siblings of `lesson.rs`, `flags.rs` and `run.rs`.

use crate::ROOT;
use crate::imports::Paths;
use crate::packages::packages;
use crate::sources::{entries, is_rust, rust_files, text};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files of each module in a folder. A module of the lab's `apparatus` is `apparatus::name`.
type Modules = BTreeMap<String, Vec<PathBuf>>;
/// Which of its siblings a module uses.
type Arrows = BTreeMap<String, BTreeSet<String>>;

const SHELF: &str = "apparatus";

/// Whether the folder is a lab with its lesson among its modules.
fn is_lab(folder: &Path) -> bool {
    folder.join("lib.rs").exists() && folder.join("lesson.rs").exists()
}

/// The modules in a folder, without their parent.
fn modules(folder: &Path) -> Modules {
    let mut modules = Modules::new();
    for path in entries(folder) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        let is_parent = ["mod", "lib", "main"].contains(&name.as_str());
        if path.is_dir() && is_lab(folder) && name == SHELF {
            for (name, files) in self::modules(&path) {
                modules.insert(format!("{SHELF}::{name}"), files);
            }
        } else if path.is_dir() && !is_of_a_reader(&path) {
            modules.entry(name).or_default().extend(rust_files(&path));
        } else if is_rust(&path) && !is_parent {
            modules.entry(name).or_default().push(path);
        }
    }
    modules
}

/// Exercises of a lab, their solutions and their checks: programs of their own.
fn is_of_a_reader(folder: &Path) -> bool {
    let name = folder.file_name().unwrap();
    let is_of_a_lab = folder.parent().is_some_and(|lab| lab.join("exercises").is_dir());
    is_of_a_lab && ["exercises", "solutions", "checks"].iter().any(|of| name == *of)
}

/// Names that the folder's parent re-exports, each with its path below the folder.
fn exported(folder: &Path) -> BTreeMap<String, String> {
    let files = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
    let mut exported = BTreeMap::new();
    for parent in files.iter().filter(|file| file.exists()) {
        for path in Paths::of(&text(parent)).exports {
            let path = path.trim_start_matches("self::").to_string();
            if let Some((_, name)) = path.rsplit_once("::") {
                exported.insert(name.to_string(), path);
            }
        }
    }
    if is_lab(folder) {
        for (name, path) in self::exported(&folder.join(SHELF)) {
            exported.insert(format!("{SHELF}::{name}"), format!("{SHELF}::{path}"));
        }
    }
    exported
}

/// The module that `path`, as it is written below the folder, leads to.
fn module_of(path: &str, modules: &Modules, exported: &BTreeMap<String, String>) -> Option<String> {
    let mut path = path.to_string();
    // A name may be exported twice: by the shelf, and by the lab.
    for _ in 0..3 {
        let leads_to = |name: &&String| {
            path.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        if let Some(module) = modules.keys().find(leads_to) {
            return Some(module.clone());
        }
        path = exported[exported.keys().find(leads_to)?].clone();
    }
    None
}

/// Which modules of a folder use which. `root` is the folder of the crate.
fn arrows(folder: &Path, root: &Path) -> Arrows {
    let modules = modules(folder);
    let exported = exported(folder);
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
            let up = inside - usize::from(is_parent);
            let of_file = Paths::of(&text(file));
            let mut paths = of_file.below(&"super::".repeat(up));
            paths.extend(of_file.below(&absolute));
            if module.starts_with(SHELF) {
                let on_the_shelf = of_file.below(&"super::".repeat(up - 1));
                paths.extend(on_the_shelf.iter().map(|path| format!("{SHELF}::{path}")));
            }
            for path in paths {
                let of = module_of(&path, &modules, &exported);
                used.extend(of.filter(|of| of != module));
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

/// A folder and those inside it, each with siblings of its own.
fn folders_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_path_buf()];
    for path in entries(folder).into_iter().filter(|path| path.is_dir()) {
        let is_shelf = is_lab(folder) && path.ends_with(SHELF);
        if is_shelf {
            // Its files are the lab's, and only what lies deeper has siblings of its own.
            found.extend(folders_below(&path).into_iter().filter(|inner| *inner != path));
        } else if !is_of_a_reader(&path) {
            found.extend(folders_below(&path));
        }
    }
    found
}

#[test]
fn siblings_form_no_circle() {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    // The gate's own program is no package of the workspace.
    let gate = Path::new(ROOT).join(".ci/mutants").canonicalize().unwrap();
    let crates = packages().into_iter().flat_map(|package| package.crates);
    for root in crates.chain([gate]) {
        for folder in folders_below(&root) {
            let arrows = arrows(&folder, &root);
            let used = |(module, used): (&String, &BTreeSet<String>)| {
                used.iter().map(|used| format!("{module} -> {used}")).collect::<Vec<_>>()
            };
            seen.extend(arrows.iter().flat_map(used));
            let circle = in_circles(&arrows);
            for module in &circle {
                let others = arrows[module].iter().filter(|other| circle.contains(other));
                let others: Vec<&str> = others.map(String::as_str).collect();
                wrong.push(format!("{}: {module} uses {}", folder.display(), others.join(", ")));
            }
        }
    }
    // One of each kind: rooms of the library, files of a small package, a lab's files, the gate's.
    for arrow in ["train -> parallel", "pack -> matrix", "run -> lesson", "list -> rules"] {
        assert!(seen.contains(arrow), "{arrow} was not found");
    }
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

#[test]
fn the_files_of_a_labs_apparatus_are_siblings_of_its_flags() {
    let lab = tempfile::tempdir().unwrap();
    std::fs::create_dir(lab.path().join("apparatus")).unwrap();
    let write = |file: &str, source: &str| {
        std::fs::write(lab.path().join(file), source).unwrap();
    };
    let circle = || in_circles(&arrows(lab.path(), lab.path()));
    write(
        "lib.rs",
        "mod apparatus;\npub use apparatus::{Way, way};\npub use flags::Args;\n",
    );
    write("lesson.rs", "use super::Way;\n");
    write("flags.rs", "use crate::apparatus::Way;\n");
    write("run.rs", "use crate::{apparatus::{draw, Way}, flags::Args};\n");
    write("apparatus/mod.rs", "pub mod draw;\nmod way;\npub use way::Way;\n");
    write("apparatus/way.rs", "use std::fmt;\n");
    write("apparatus/draw.rs", "use crate::flags::Args;\nuse super::way::Way;\n");
    assert!(circle().is_empty(), "{:?}", circle());
    write("apparatus/way.rs", "use crate::Args;\n");
    assert_eq!(circle(), ["apparatus::way", "flags"], "names that are exported twice");
    write("apparatus/way.rs", "use super::draw;\n");
    write("apparatus/draw.rs", "use super::way::Way;\n");
    assert_eq!(circle(), ["apparatus::draw", "apparatus::way"], "on the shelf");
}
