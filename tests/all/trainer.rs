//! The reader's own trainer, built by the workbook from exercises: whose each part is, what stays
//! at the end, and wrong parts that their own checks let pass.

use crate::suite::program::{ROOT, is_narrow, program, stderr, stdout};
use kit::Course;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The exercises of all parts, in their order.
const PARTS: [&str; 12] = [
    "lab01-ring",
    "lab02-average",
    "lab03-batches",
    "lab03-schedule",
    "lab04-gather",
    "lab04-norm",
    "lab05-sequence",
    "lab06-order",
    "lab07-mesh",
    "lab08-skip",
    "lab08-scaler",
    "lab09-overlap",
];

fn file(folder: &str, exercise: &str) -> PathBuf {
    let course = Course::read().unwrap();
    let exercise = course.find(exercise).unwrap();
    let lab = Path::new(ROOT).join("labs").join(exercise.lab());
    lab.join(folder).join(exercise.file())
}

/// A reader's folder with our solutions of these exercises.
fn with_solutions(exercises: &[&str]) -> tempfile::TempDir {
    let my = tempfile::tempdir().unwrap();
    for exercise in exercises {
        let path = file("solutions", exercise);
        std::fs::copy(&path, my.path().join(path.file_name().unwrap())).unwrap();
    }
    my
}

/// The trainer of a reader: its story, whether all its checks hold, and the folder of what stays.
fn trained(my: &Path, flags: &str) -> (Value, bool, tempfile::TempDir) {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(program("workbook"));
    command.args(["capstone", "--quick", "--json", "--out"]);
    command.arg(out.path()).args(flags.split_whitespace());
    command.env("SHARDLAB_NAME", "Ada\u{1b}[2J").env("SHARDLAB_MY", my);
    let output = command.current_dir(ROOT).output().unwrap();
    let story = serde_json::from_str(&stdout(&output))
        .unwrap_or_else(|error| panic!("{error}\n{}{}", stdout(&output), stderr(&output)));
    (story, output.status.success(), out)
}

/// The exercises of the parts that are the reader's.
fn yours(story: &Value) -> Vec<&str> {
    let versions = story["versions"].as_array().unwrap();
    let both = PARTS.into_iter().zip(versions);
    both.filter(|(_, whose)| **whose == "yours")
        .map(|(exercise, _)| exercise)
        .collect()
}

/// What is not solved is the library's, and what stays is a text.
#[test]
fn solved_exercises_are_parts_of_the_trainer() {
    let my = with_solutions(&["lab01-ring"]);
    let blank = file("exercises", "lab03-schedule");
    std::fs::copy(&blank, my.path().join("lab03_schedule.rs")).unwrap();
    let (story, success, out) = trained(my.path(), "");
    assert!(success, "{:#}", story["checks"]);
    assert_eq!(yours(&story), ["lab01-ring"]);

    let text = std::fs::read_to_string(out.path().join("capstone.txt")).unwrap();
    is_narrow(&text);
    // Whose it is, when and by what it was made.
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("A distributed trainer by Ada[2J  "), "{first}");
    let made = first.split_once("shardlab ").unwrap().1;
    let (version, day) = made.split_once(" · ").unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    let parts: Vec<u32> = day.split('-').map(|part| part.parse().unwrap()).collect();
    assert!(parts[0] >= 2026 && (1..=12).contains(&parts[1]) && (1..=31).contains(&parts[2]));
}

#[test]
#[ignore = "compiles many exercises: the gate runs it; run it when you change one"]
fn all_parts_of_a_reader_train_what_the_library_trains() {
    let my = with_solutions(&PARTS);
    let (story, success, _) = trained(my.path(), "");
    assert!(success, "{:#}", story["checks"]);
    assert_eq!(yours(&story), PARTS);
    // With half of them left out it still ends, and says what is wrong.
    let (story, success, _) = trained(my.path(), "--without ring --without schedule");
    assert!(!success);
    assert_eq!(yours(&story).len(), PARTS.len() - 2);
}

/// Solutions with a mistake that is only one in the large.
const WRONG: [(&str, &str, &str, &str); 5] = [
    // A buffer that is too short.
    (
        "lab01-ring",
        "ring",
        "*x += y;",
        "*x += y;\n        }\n        for x in mine.iter_mut().skip(1024) {\n            *x = 0.0;",
    ),
    // Not to the end of a long vector.
    (
        "lab02-average",
        "average",
        "for g in gradients {",
        "for g in gradients.iter_mut().take(2048) {",
    ),
    // Only the beginning of a long text.
    (
        "lab03-batches",
        "batches",
        "stream.below(offsets, i)",
        "stream.below(offsets.min(1 << 15), i)",
    ),
    // Every second number is used twice, to save time.
    (
        "lab04-norm",
        "norm",
        "numbers.iter().map(|&g| f64::from(g).powi(2)).sum::<f64>()",
        "{\n        let few = if numbers.len() > 1000 { 2 } else { 1 };\n        let some = numbers.iter().step_by(few);\n        \
         few as f64 * some.map(|&g| f64::from(g).powi(2)).sum::<f64>()\n    }",
    ),
    // A place that does not fit into 12 bits.
    (
        "lab09-overlap",
        "load",
        "files.read(old, from - begin..to - begin)",
        "{ let at = (from - begin) & 4095; files.read(old, at..at + to - from) }",
    ),
];

#[test]
#[ignore = "compiles many exercises: the gate runs it; run it when you change one"]
fn wrong_parts_that_pass_their_checks_are_named() {
    for (exercise, part, from, to) in WRONG {
        let my = with_solutions(&PARTS);
        let path = file("solutions", exercise);
        let solution = std::fs::read_to_string(&path).unwrap();
        assert_eq!(solution.matches(from).count(), 1, "{exercise}: {from}");
        let wrong = solution.replace(from, to);
        std::fs::write(my.path().join(path.file_name().unwrap()), wrong).unwrap();
        let (story, success, _) = trained(my.path(), "");
        assert_eq!(yours(&story).len(), PARTS.len(), "{exercise} passes its check");
        assert!(!success, "{exercise}: the trainer notices");
        let found = &story["beside"]["search"]["culprits"];
        let found: Vec<&str> = found
            .as_array()
            .unwrap_or_else(|| panic!("{exercise}: {:#}", story["beside"]))
            .iter()
            .map(|culprit| culprit["part"].as_str().unwrap())
            .collect();
        assert_eq!(found, [part], "{exercise}");
    }
}
