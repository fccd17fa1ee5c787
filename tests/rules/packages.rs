//! This project's packages as Cargo knows them, and the floor of each: a package depends only on
//! floors below its own.

use crate::ROOT;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A package of this project.
pub struct Package {
    pub name: String,
    /// Seen from the project's folder: `labs/lab03`, or nothing for the library.
    pub folder: String,
    /// The packages of this project that it depends on, tests aside.
    pub uses: Vec<String>,
    /// The folders of its crates that have a `lib.rs` or a `main.rs`.
    pub crates: BTreeSet<PathBuf>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Told>,
    workspace_root: PathBuf,
}

/// A package, as `cargo metadata` tells of it.
#[derive(Deserialize)]
struct Told {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    path: Option<PathBuf>,
}

/// All packages.
pub fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let Metadata { packages, workspace_root } = serde_json::from_slice(&output.stdout).unwrap();
    let package = |told: Told| {
        let folder = told.manifest_path.parent().unwrap();
        let folder = folder.strip_prefix(&workspace_root).unwrap();
        let roots = told.targets.into_iter().map(|target| target.src_path);
        let roots = roots.filter(|root| root.ends_with("lib.rs") || root.ends_with("main.rs"));
        let ours = told.dependencies.into_iter().filter(|one| one.path.is_some());
        Package {
            name: told.name,
            folder: folder.to_str().unwrap().to_string(),
            uses: ours.filter(|one| one.kind.is_none()).map(|one| one.name).collect(),
            crates: roots.filter_map(|root| root.parent().map(Path::to_path_buf)).collect(),
        }
    };
    packages.into_iter().map(package).collect()
}

/// The labs' folders, seen from the project's.
pub fn labs(packages: &[Package]) -> impl Iterator<Item = &Path> {
    let folders = packages.iter().map(|package| Path::new(&package.folder));
    folders.filter(|folder| fits("labs/lab*", folder.to_str().unwrap()))
}

/// The folders of each floor, from the library up.
const FLOORS: [&[&str]; 10] = [
    &["crates/bf16", "crates/shapes", "crates/unified"],
    &["", "crates/planner"],
    &["labs/kit"],
    &["labs/exercise", "labs/deepspeed"],
    &["labs/lab*"],
    &["labs/capstone", "labs/ladder"],
    &["labs/all"],
    &["labs/tools/book"],
    &["labs/tools/*"],
    &["tests", "tests/library", "tests/mpi", "tests/rules", "labs/web"],
];

/// Whether a folder is the pattern, or begins with what is before its star.
fn fits(pattern: &str, folder: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begins) => folder.starts_with(begins),
        None => folder == pattern,
    }
}

fn floor(package: &Package) -> Option<usize> {
    let is_on = |floor: &&[&str]| floor.iter().any(|pattern| fits(pattern, &package.folder));
    FLOORS.iter().position(is_on)
}

/// What is wrong with the floors of packages.
fn wrong_floors(packages: &[Package]) -> Vec<String> {
    let mut wrong = Vec::new();
    for package in packages {
        let Some(own) = floor(package) else {
            wrong.push(format!("{} has no floor: FLOORS lacks its folder", package.name));
            continue;
        };
        for used in packages.iter().filter(|other| package.uses.contains(&other.name)) {
            if floor(used).is_some_and(|floor| floor >= own) {
                wrong.push(format!("{} depends on {}", package.name, used.name));
            }
        }
    }
    wrong
}

#[test]
fn a_package_depends_only_on_floors_below_its_own() {
    let packages = packages();
    let wrong = wrong_floors(&packages);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all = packages.iter().find(|package| package.folder == "labs/all").unwrap();
    for lab in labs(&packages) {
        let name = lab.file_name().unwrap().to_str().unwrap();
        assert!(all.uses.iter().any(|used| used == name), "labs/all has no {name}");
    }
}

/// Cargo's own word for it: below and inside the planner nothing knows a tensor, a flag or a
/// screen.
#[test]
fn the_planner_knows_no_tensor_and_no_screen() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--offline", "--locked", "--package", "planner", "--prefix", "none"])
        .current_dir(ROOT)
        .output()
        .unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.starts_with(&["planner"]) && names.contains(&"shapes"), "{tree}");
    for unknown in ["candle-core", "shardlab", "kit", "clap"] {
        assert!(!names.contains(&unknown), "planner depends on {unknown}:\n{tree}");
    }
}

#[test]
fn a_new_package_is_looked_at() {
    let package = |folder: &str, uses: &[&str]| Package {
        name: folder.rsplit('/').next().unwrap().into(),
        folder: folder.into(),
        uses: uses.iter().map(ToString::to_string).collect(),
        crates: BTreeSet::new(),
    };
    let kit = || package("labs/kit", &[]);
    let wrong = |new: Package| wrong_floors(&[kit(), package("labs/lab05", &["kit"]), new]);
    assert!(wrong(package("labs/lab99", &["kit"])).is_empty());
    assert!(wrong(package("labs/tools/new", &["lab05"])).is_empty());
    assert_eq!(wrong(package("labs/lab99", &["lab05"])), ["lab99 depends on lab05"]);
    assert_eq!(wrong(package("extra", &[])), ["extra has no floor: FLOORS lacks its folder"]);
    let new = [kit(), package("labs/lab99", &[])];
    assert_eq!(labs(&new).collect::<Vec<_>>(), [Path::new("labs/lab99")]);
}
