//! Every mistake that a lab makes on purpose, in every type: a run says which one it is, and ends
//! in a verdict.

use super::transcript::each;
use crate::labs::labs;
use crate::suite::program::{lab, stderr, stdout, succeeded};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Each lab with mistakes, at its smallest, and types that it takes.
const LABS: [(&str, &str, &[&str]); 13] = [
    ("lab00", "--ranks 2", &[""]),
    ("lab01", "--ranks 2", &[""]),
    ("lab02", "--ranks 2 --batch 2 --steps 6 --log-interval 2", &[""]),
    ("lab03", "--ranks 2 --steps 6 --eval-iters 2 --log-interval 1", &TYPES),
    ("lab04", "--ranks 3 --steps 6", &TYPES),
    ("lab05", "", &[""]),
    ("lab06", "--stages 2 --steps 2", &["", "--dtype bf16"]),
    ("lab07", "--steps 2", &TYPES),
    (
        "lab08",
        "--ranks 2 --steps 64",
        &["", "--dtype bf16", "--reduce-dtype bf16", "--fp16"],
    ),
    ("lab09", "", &TYPES),
    ("lab10", "--ranks 2", &["", "--dtype bf16"]),
    ("lab12", "--ranks 2", &TYPES),
    ("lab13", "--ranks 2 --steps 5", &TYPES),
];

const TYPES: [&str; 3] = ["", "--dtype bf16", "--reduce-dtype bf16"];

/// A model that takes a moment, for the labs that train one.
const SMALL: &str = "--layers 2 --embd 16 --heads 2 --block 8";

/// The values of a lab's `--break`, by its error for one that it has not.
fn mistakes(name: &str) -> Vec<String> {
    let said = stderr(&lab(name, "--break nothing"));
    let (_, values) = said.split_once("possible values: ").expect(&said);
    values
        .lines()
        .next()
        .expect(&said)
        .split(',')
        .map(|value| value.trim().to_string())
        .collect()
}

/// Roundings grow with the rate, until two right trainings are far apart: no check takes that for a
/// mistake.
#[test]
fn right_trainings_pass_their_checks_at_a_large_rate() {
    for (name, flags) in [
        ("lab03", "--ranks 2 --steps 6 --eval-iters 2"),
        ("lab04", "--ranks 2 --steps 6"),
        ("lab05", "--tp 2 --steps 6 --eval-iters 2"),
        ("lab06", "--stages 2 --steps 6"),
        ("lab07", "--steps 10"),
        ("lab09", ""),
        ("lab12", "--ranks 2"),
    ] {
        for (of_type, lr) in [("", "1"), ("--dtype bf16", "0.1")] {
            let output = lab(name, &format!("{SMALL} {flags} {of_type} --lr {lr} --warmup 0"));
            let said = stderr(&output);
            // A model can get worse at such a rate; that is no word about the ranks.
            let right =
                output.status.success() || said.contains("the validation loss did not fall");
            assert!(right, "{name} {of_type} --lr {lr}\n{}{said}", stdout(&output));
        }
    }
}

#[test]
#[ignore = "runs a hundred labs: the gate runs it; run it when you change a mistake or a check"]
fn each_mistake_is_named_and_judged_in_each_type() {
    let names = labs().into_iter().map(|lab| lab.name);
    let breaks = |name: &String| succeeded(&lab(name, "--help")).contains("--break <");
    let with_mistakes: Vec<String> = names.filter(breaks).collect();
    assert_eq!(with_mistakes, LABS.map(|(name, ..)| name), "labs with mistakes");
    let mut runs = Vec::new();
    for (name, flags, types) in LABS {
        let model = if ["lab00", "lab01", "lab02", "lab05", "lab10"].contains(&name) {
            ""
        } else {
            SMALL
        };
        for mistake in mistakes(name) {
            // What a mistake needs to be one.
            let (model, flags) = match (name, &*mistake) {
                ("lab06", "small-group") => ("--layers 4 --embd 16 --heads 2 --block 8", flags),
                // It reads files, and trains nothing.
                ("lab09", "strip") => ("", flags),
                ("lab04", "norm-over-all" | "accumulate-late") => {
                    (model, "--strategy dp=4,zero=3,shard=2,m=2 --steps 6")
                }
                ("lab12", "own-count") => (model, "--ranks 2 --seed 1"),
                ("lab13", "no-balance") => (model, "--ranks 2 --steps 100"),
                _ => (model, flags),
            };
            let of = |of_type: &&str| {
                (name, mistake.clone(), format!("{model} {flags} {of_type} --break {mistake}"))
            };
            runs.extend(types.iter().map(of));
        }
    }
    let all: BTreeSet<_> =
        runs.iter().map(|(name, mistake, _)| format!("{name} {mistake}")).collect();
    let made = Mutex::new(BTreeSet::new());
    each(runs, |(name, mistake, flags)| {
        let output = lab(name, &flags);
        let (shown, said) = (stdout(&output), stderr(&output));
        let all = format!("{name} {flags}:\n{shown}{said}");
        assert!(!said.contains("panicked"), "{all}");
        let is_named = shown.contains(&format!("What goes wrong: {mistake}\n"));
        if is_named {
            made.lock().unwrap().insert(format!("{name} {mistake}"));
        }
        match output.status.code() {
            // What it would change is not there, and the error says what to give.
            Some(2) => assert!(said.contains("help: "), "{all}"),
            Some(1) => assert!(is_named && said.contains("error: "), "{all}"),
            // It changes less than bf16 rounds, which the run says; or a check is of the mistake
            // itself.
            Some(0) => {
                assert!(is_named && shown.contains("\n  check "), "{all}");
                assert!(!shown.contains("here it changes nothing"), "{all}");
            }
            _ => panic!("{all}"),
        }
    });
    let made = made.into_inner().unwrap();
    let refused: Vec<&String> = all.difference(&made).collect();
    assert!(refused.is_empty(), "no run has made {refused:?}");
}
