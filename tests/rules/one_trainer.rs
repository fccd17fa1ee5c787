//! One place trains: `Training`. Elsewhere no file puts a step together, neither in the library nor
//! in a program, because the next axis would then have to be added there too. The hearts of the
//! labs and the capstone's second life are about how a step is put together, and benches and tests
//! look at its parts: they are not read.

use crate::ROOT;
use crate::sources::{entries, rust_files, text, without_tests};
use std::path::{Path, PathBuf};

/// Calls of which a step consists. Each stands for itself or at the end of a path, as in
/// `self.zero.begin()`.
const CALLS: [&str; 9] = [
    "zero.begin(",
    "zero.finish(",
    "zero.step(",
    "zero.update(",
    "ddp.finish(",
    ".backward()?",
    ".backward())",
    ".backward().",
    ".backward(vec![",
];

/// Where a step may be put together: its subject is just that.
const SUBJECTS: [&str; 8] = [
    "src/train/training.rs",
    "/lesson.rs",
    "/exercises/",
    "/solutions/",
    "/checks/",
    "labs/lab02/",
    "labs/capstone/life2.rs",
    "notebooks/lab02.ipynb",
];

/// Other files with a pass of their own, and why.
const EXEMPT: [(&str, &str); 8] = [
    ("notebooks/lab00.ipynb", "shows what becomes of gradients across cells"),
    ("labs/lab08/skipping/trainer.rs", "goes on with a step that it may have skipped"),
    ("labs/tools/formats/sums.rs", "draws the gradients of 64 ranks without a step"),
    (
        "labs/tools/memory/main.rs",
        "looks at the heap between the two passes of one micro-batch",
    ),
    (
        "labs/tools/scaling/main.rs",
        "trains lab02's MLP, and draws gradients without a step",
    ),
    ("labs/lab06/apparatus/choice.rs", "chooses the next pass while the step runs"),
    (
        "labs/lab06/apparatus/unpipelined.rs",
        "adds up the tied table as a pipeline's two ends do",
    ),
    (
        "notebooks/lab03.ipynb",
        "a reader adds the calls of data parallelism to a step by hand",
    ),
];

/// The library, programs and notebooks. Paths begin at the project's root.
fn files() -> Vec<String> {
    let root = Path::new(ROOT);
    let mut files = rust_files(&root.join("src"));
    files.extend(rust_files(&root.join("labs")));
    let notebooks = entries(&root.join("notebooks"));
    files.extend(
        notebooks
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "ipynb")),
    );
    let path = |file: &PathBuf| file.strip_prefix(root).unwrap().display().to_string();
    files.iter().map(path).collect()
}

/// The cells of code of a notebook, or a file's code without its tests.
fn code_of(path: &str) -> String {
    let source = text(&Path::new(ROOT).join(path));
    if !path.ends_with(".ipynb") {
        return in_one_line(&without_tests(&source));
    }
    let notebook: serde_json::Value = serde_json::from_str(&source).unwrap();
    let cells = notebook["cells"].as_array().unwrap().iter();
    let lines = cells
        .filter(|cell| cell["cell_type"] == "code")
        .flat_map(|cell| cell["source"].as_array().unwrap())
        .filter_map(|line| line.as_str());
    in_one_line(&lines.collect::<String>())
}

/// The code without comments, in one line, with a chain of calls as one word.
fn in_one_line(source: &str) -> String {
    let lines = source.lines().filter_map(|line| line.split("//").next());
    let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>();
    words.join(" ").replace(" .", ".")
}

/// The calls of a step in `code`.
fn calls(code: &str) -> Vec<&'static str> {
    CALLS.into_iter().filter(|call| code.contains(call)).collect()
}

#[test]
fn only_the_library_puts_a_step_together() {
    let mut found = Vec::new();
    let mut exempt = EXEMPT.to_vec();
    for path in files() {
        if SUBJECTS.iter().any(|subject| path.contains(subject)) {
            continue;
        }
        let calls = calls(&code_of(&path));
        if calls.is_empty() {
            continue;
        }
        match exempt.iter().position(|(file, _)| *file == path) {
            Some(at) => drop(exempt.remove(at)),
            None => found.push(format!("{path}: {}", calls.join(" "))),
        }
    }
    assert!(found.is_empty(), "these train without `Training`:\n{}", found.join("\n"));
    assert!(exempt.is_empty(), "these need no exemption any more: {exempt:?}");
}

#[test]
fn a_step_is_recognised() {
    let by_hand = "self.zero.begin()?; loss.backward()?; let n = self.zero.step(lr, clip)?;";
    assert_eq!(calls(by_hand), ["zero.begin(", "zero.step(", ".backward()?"]);
    assert_eq!(calls("clock.time(Backward, || loss.backward())?"), [".backward())"]);
    assert!(calls("let taken = training.step(text, step)?; simulation.backward();").is_empty());
}
