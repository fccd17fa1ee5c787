//! What every program answers to a command line: help, versions, and what is wrong with it.

use crate::suite::program::{ROOT, failed, program, stderr, succeeded};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// All programs of the package.
fn programs() -> Vec<PathBuf> {
    let built = Path::new(program("lab00")).parent().unwrap();
    let root = Path::new(ROOT);
    let folders =
        |of: &str| std::fs::read_dir(root.join(of)).unwrap().map(|entry| entry.unwrap().path());
    let packages = folders("labs")
        .chain(folders("labs/tools"))
        // What runs on the book's pages takes no command line.
        .filter(|folder| folder.join("main.rs").is_file() && !folder.ends_with("web"));
    let names = packages.map(|folder| folder.file_name().unwrap().to_os_string());
    names
        .map(|name| built.join(name).with_extension(std::env::consts::EXE_EXTENSION))
        .collect()
}

#[test]
fn every_program_refuses_what_it_does_not_know_in_the_form_of_all_errors() {
    for program in programs() {
        let output = Command::new(&program).arg("--raanks=x").output().unwrap();
        assert_eq!(failed(&output, 2, "unexpected argument '--raanks' found\nhelp: "), "");
        let error = stderr(&output);
        assert!(error.ends_with("\n      For more information, try '--help'.\n"), "{error}");
        assert!(!error.contains('\x1b') && !error.contains("\n\n"), "{error}");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    for program in programs() {
        for flag in ["--help", "--version"] {
            let output = Command::new(&program).arg(flag).output().unwrap();
            let text = succeeded(&output);
            let name = program.file_stem().unwrap().to_str().unwrap();
            assert!(
                text.contains(&format!("{name} ")) && stderr(&output).is_empty(),
                "{name} {flag}: {text}"
            );
        }
    }
}

/// What a program says of its flags.
fn help(program: &Path, form: &str) -> String {
    succeeded(&Command::new(program).arg(form).output().unwrap())
}

fn name(program: &Path) -> &str {
    program.file_stem().unwrap().to_str().unwrap()
}

/// Lines that begin without a margin and end with a colon, such as `Model and data:`.
fn headings(help: &str) -> Vec<&str> {
    let all = help.lines().filter(|line| !line.starts_with(' '));
    all.filter_map(|line| line.strip_suffix(':')).collect()
}

/// The arguments in the examples at the end of a program's help.
fn examples(program: &Path, help: &str) -> Vec<Vec<String>> {
    let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_default();
    let examples = examples.replace("\\\n", " ");
    let command = format!("  cargo run --bin {}", name(program));
    let flags = examples.lines().filter_map(|line| line.strip_prefix(&command));
    let words = |flags: &str| flags.split_whitespace().map(String::from).collect();
    flags
        .map(|flags| match flags.strip_prefix(" -- ") {
            Some(flags) => words(flags),
            None => words(flags),
        })
        .collect()
}

#[test]
fn short_help_fits_one_screen_and_long_help_has_headings_and_examples() {
    for program in &programs() {
        let short = help(program, "-h");
        let long = help(program, "--help");
        let name = name(program);
        assert!(short.lines().count() <= 48, "{name} -h:\n{short}");
        assert!(
            short.trim_end().lines().last().unwrap().starts_with("--help shows all"),
            "{name} -h:\n{short}"
        );
        for text in [&short, &long] {
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name}");
        }
        let headings = headings(&long);
        let headings = headings.iter().filter(|one| !["Examples"].contains(one));
        assert!(headings.count() >= 2, "{name}: {long}");
        assert!(!long.contains("\nOptions:"), "{name}: a flag has no heading\n{long}");
        assert!(examples(program, &long).len() >= 2, "{name}: {long}");
        // All flags of the short form are in the long one.
        let words = short.split_whitespace().filter(|word| word.starts_with("--"));
        for flag in words {
            assert!(long.contains(flag), "{name}: {flag}");
        }
    }
}

/// A program that begins has taken its command line: it prints its heading. What would go on to
/// check or write, or needs a folder that is not here, only shows that it knows the command.
#[test]
#[ignore = "starts every example: the gate runs it; run it when you change one"]
fn examples_of_help_are_commands_that_begin() {
    for program in &programs() {
        let name = name(program);
        for mut flags in examples(program, &help(program, "--help")) {
            if ["book", "checkpoint", "workbook"].contains(&name) {
                flags.push("--help".into());
            }
            let dir = tempfile::tempdir().unwrap();
            let mut started = Command::new(program)
                .args(&flags)
                .current_dir(dir.path())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            let mut output = BufReader::new(started.stdout.take().unwrap());
            output.read_line(&mut line).unwrap();
            let _ = started.kill(); // it may have ended
            started.wait().unwrap();
            let mut error = String::new();
            let mut stderr = started.stderr.take().unwrap();
            stderr.read_to_string(&mut error).unwrap();
            assert!(!line.trim().is_empty(), "{name} {flags:?}: {error}");
        }
    }
}
