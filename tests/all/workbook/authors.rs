//! The workbook for those who write labs: a lab that is begun, and what it still lacks.

use super::{command, workbook};
use crate::suite::program::{ROOT, failed, has, is_narrow, stdout, succeeded};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
        return;
    }
    for entry in std::fs::read_dir(from).unwrap() {
        let name = entry.unwrap().file_name();
        copy(&from.join(&name), &to.join(&name));
    }
}

/// What `workbook dev` reads and writes, in a folder of its own.
fn checkout() -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    for part in [
        "Cargo.toml",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "book/outputs",
        "book/outputs.toml",
        "book/pytorch/lab07.py",
        "book/src",
        "examples",
        "findings",
        "labs/all",
        "labs/lab05/lesson.rs",
        "labs/labs.toml",
        "labs/tools/workbook/dev",
        "tests/all",
    ] {
        copy(&Path::new(ROOT).join(part), &copied.path().join(part));
    }
    copied
}

fn dev(checkout: &Path, arguments: &[&str]) -> Output {
    let mut dev = command(&checkout.join("my"), "dev");
    dev.current_dir(checkout).args(arguments).output().expect("the workbook starts")
}

/// The next lab's name.
fn next() -> String {
    format!("lab{:02}", super::course().labs.len())
}

#[test]
fn every_lab_has_what_labs_consist_of() {
    let my = tempfile::tempdir().unwrap();
    for lab in super::course().labs {
        let said = succeeded(&workbook(my.path(), &format!("dev check {}", lab.name)));
        has(&said, &["Nothing is missing"]);
    }
    failed(&workbook(my.path(), "dev check lab99"), 2, "labs/labs.toml has no lab99\n");
}

#[cfg(unix)]
#[test]
fn a_lab_is_begun_and_says_what_it_lacks() {
    let checkout = checkout();
    let (root, name) = (checkout.path(), next());
    failed(
        &dev(root, &["new", "lab99", "A sum"]),
        2,
        "lab99 is not the lab that comes next\n",
    );
    failed(&dev(root, &["new", &name, "A|B"]), 2, "\"A|B\" cannot be a title\n");
    let page = root.join(format!("book/src/{name}.md"));
    std::fs::write(&page, "mine").unwrap();
    let there = format!("book/src/{name}.md is there already\n");
    failed(&dev(root, &["new", &name, "A sum"]), 2, &there);
    assert!(!root.join("labs").join(&name).exists(), "nothing is written");
    std::fs::remove_file(&page).unwrap();

    let said = succeeded(&dev(root, &["new", &name, "A sum"]));
    let written = ["book/src/how-to-use.md", "tests/all/main.rs", "git grep -nE"];
    has(&said, &[&format!("labs/{name}/lesson.rs")]);
    has(&said, &written);
    let output = dev(root, &["check", &name]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    is_narrow(&said);
    let steps = ["entry", "lesson", "program", "exercise", "page", "notebook"];
    let places: Vec<usize> = steps.map(|step| said.find(&format!("✗ {step}")).expect(step)).into();
    assert!(places.is_sorted(), "{said}");
    has(
        &said,
        &["labs/labs.toml:", "which question, in one line?", "✓ blocks", "dev update"],
    );

    // The step to work at is the first in which something is missing.
    let entries = root.join("labs/labs.toml");
    let written = std::fs::read_to_string(&entries).unwrap().replace("TODO", "");
    std::fs::write(&entries, written.replace("[\"lab01\"]", "[\"lab02\"]")).unwrap();
    std::fs::remove_file(root.join(format!("labs/{name}/flags.rs"))).unwrap();
    let said = stdout(&dev(root, &["check", &name]));
    has(&said, &["✓ entry", &format!("labs/{name}/lesson.rs:3 which"), "✗ blocks"]);
    let lesson = root.join(format!("labs/{name}/lesson.rs"));
    let written = std::fs::read_to_string(&lesson).unwrap().replace("TODO", "");
    std::fs::write(&lesson, written).unwrap();
    let said = stdout(&dev(root, &["check", &name]));
    has(&said, &["✓ lesson", &format!("labs/{name}/flags.rs is not there")]);
    has(&said, &[&format!("cargo test --test all -- {name}::")]);
}

/// The newest of a package's compiled forms.
fn compiled(name: &str) -> PathBuf {
    let folder = std::env::current_exe().unwrap().with_file_name("");
    let begins = format!("lib{name}-");
    let is_its = |path: &PathBuf| {
        let file = path.file_name().unwrap().to_string_lossy();
        file.starts_with(&begins) && file.ends_with(".rlib")
    };
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let newest = files
        .filter(is_its)
        .max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect(name)
}

#[cfg(unix)]
#[test]
#[ignore = "compiles a lab: the gate runs it; run it when you change the skeleton"]
fn a_begun_lab_compiles() {
    let checkout = checkout();
    let (root, name) = (checkout.path(), next());
    succeeded(&dev(root, &["new", &name, "A sum"]));
    let folder = root.join("labs").join(&name);
    let compiles = |file: &str, as_crate: &str, more: &[String]| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--emit", "metadata", "-Dwarnings"]);
        let kind = if file.ends_with("main.rs") || as_crate == "check" {
            "bin"
        } else {
            "lib"
        };
        rustc
            .args(["--crate-type", kind, "--crate-name", as_crate, "--out-dir"])
            .arg(root)
            .args(more);
        for package in ["anyhow", "clap", "kit", "shardlab"] {
            rustc.arg("--extern").arg(format!("{package}={}", compiled(package).display()));
        }
        let dependencies = compiled("kit").with_file_name("");
        rustc.arg("-L").arg(format!("dependency={}", dependencies.display()));
        succeeded(&rustc.arg(folder.join(file)).output().unwrap());
    };
    let linked = |name: &str| {
        let file = root.join(format!("lib{name}.rmeta"));
        ["--extern".to_string(), format!("{name}={}", file.display())]
    };
    compiles("lib.rs", &name, &[]);
    compiles("main.rs", "program", &linked(&name));
    for of in ["exercises", "solutions"] {
        compiles(&format!("{of}/{name}_first.rs"), "exercise", &[]);
    }
    compiles(&format!("checks/{name}_first.rs"), "check", &linked("exercise"));

    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024", "--config-path", ROOT]);
    rustfmt.arg(folder.join("lib.rs"));
    for of in ["exercises", "solutions", "checks"] {
        rustfmt.arg(folder.join(of).join(format!("{name}_first.rs")));
    }
    succeeded(&rustfmt.arg(root.join(format!("tests/all/{name}.rs"))).output().unwrap());
}
