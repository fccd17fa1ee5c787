//! `--strategy TEXT` beside the flags that say the same: each pair is refused, or obeyed. No lab
//! ignores one of them.

use crate::labs::labs;
use crate::suite::program::{lab, stderr, succeeded};
use std::collections::BTreeSet;

/// A flag with a value, and the part of a text that says the same.
const SAME: [(&str, &str, &str); 21] = [
    ("--ranks", "2", "dp=2"),
    ("--stages", "2", "pp=2"),
    ("--tp", "2", "tp=2"),
    ("--pp", "2", "pp=2"),
    ("--sp", "", "sp"),
    ("--order", "data", "order=tp-pp-dp"),
    ("--make-vocab-size-divisible-by", "128", "pad=128"),
    ("--zero", "1", "zero=1"),
    ("--chunks", "2", "chunks=2"),
    ("--schedule", "gpipe", "schedule=gpipe"),
    ("--group", "2", "pp=2,chunks=2,group=2"),
    ("--partition", "parameters", "partition=parameters"),
    ("--recompute", "1", "recompute=full"),
    ("--comm", "gather", "cp-comm=gather"),
    ("--slices", "contiguous", "cp-order=contiguous"),
    ("--micro-batches", "2", "m=2"),
    ("--grad-accum", "2", "m=2"),
    ("--batch", "2", "mb=2"),
    ("--global-batch", "4", "mb=2"),
    ("--offload", "cpu", "offload=optimizer"),
    ("--tiles", "2", "tiles=2"),
];

/// What a text leaves to the job unless it says it.
const SIZES: [&str; 6] = [
    "--micro-batches",
    "--grad-accum",
    "--batch",
    "--global-batch",
    "--offload",
    "--tiles",
];

/// Flags about ranks and their strategy that no text says.
const OTHERS: [&str; 20] = [
    "--strategy",
    "--link",
    "--deadline",
    "--no-check",
    "--no-overlap",
    "--all-reduce",
    "--reduce-bucket",
    "--prefetch-bucket",
    "--persistence-threshold",
    "--wrap",
    "--pace",
    "--documents",
    "--dtype",
    "--train-range-to-skip",
    "--policy",
    "--poison",
    "--no-poison",
    "--save-every",
    "--memory-limit",
    "--link-between",
];

/// The flags of a lab, and the heading of each.
fn flags(name: &str) -> Vec<(String, String)> {
    let mut heading = String::new();
    let mut all = Vec::new();
    for line in succeeded(&lab(name, "--help")).lines() {
        if let Some(title) = line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            heading = title.to_string();
        }
        let flag = line.trim_start().split([' ', ',']).find(|word| word.starts_with("--"));
        if let Some(flag) = flag.filter(|_| line.trim_start().starts_with('-')) {
            all.push((flag.to_string(), heading.clone()));
        }
    }
    all
}

/// The labs that take a strategy's text, with their flags.
fn labs_with_a_strategy() -> Vec<(String, Vec<(String, String)>)> {
    let all = labs().into_iter().map(|lab| (flags(&lab.name), lab.name));
    let takes = |flags: &[(String, String)]| flags.iter().any(|(flag, _)| flag == "--strategy");
    let found: Vec<_> = all
        .filter(|(flags, _)| takes(flags))
        .map(|(flags, name)| (name, flags))
        .collect();
    assert!(found.iter().any(|(name, _)| name == "lab03"), "{found:?}");
    found
}

/// A new flag about how ranks divide a job belongs to one of the lists, and to that of kit's
/// `flags/twice.rs`.
#[test]
fn every_flag_of_a_strategy_is_known_here() {
    for (name, flags) in labs_with_a_strategy() {
        for (flag, heading) in flags {
            let known = SAME.iter().any(|(same, ..)| *same == flag) || OTHERS.contains(&&*flag);
            let about = ["Strategy", "Ranks and network"].contains(&&*heading);
            assert!(known || !about, "{name} {flag}");
        }
    }
}

#[test]
fn a_flag_that_a_strategy_says_too_is_refused_by_every_lab() {
    let mut refused = BTreeSet::new();
    for (name, flags) in labs_with_a_strategy() {
        let has: Vec<String> = flags.into_iter().map(|(flag, _)| flag).collect();
        for (flag, value, part) in SAME {
            let said = part.rsplit(',').next().unwrap();
            let key = said.split('=').next().unwrap();
            for text in [part, "dp=1"] {
                if text != part && SIZES.contains(&flag) {
                    continue;
                }
                let output = lab(&name, &format!("--strategy {text} {flag} {value}"));
                let error = stderr(&output);
                assert_eq!(output.status.code(), Some(2), "{name} {text} {flag}: {error}");
                assert!(output.stdout.is_empty(), "{name} {text} {flag}");
                if has.iter().any(|known| known == flag) {
                    let says = format!("{flag} beside --strategy {text}: both say {key}");
                    assert!(error.contains(&says) && error.contains("help: "), "{name}: {error}");
                    refused.insert(flag);
                }
            }
        }
    }
    assert_eq!(refused, SAME.map(|(flag, ..)| flag).into(), "flags that some lab has");
}

/// What the text does not say, a flag does.
#[test]
fn a_size_that_a_strategy_leaves_out_is_obeyed() {
    for (name, text, flag) in [
        ("lab03", "dp=2", "--grad-accum 2"),
        ("lab03", "dp=2,mb=4", "--grad-accum 2"),
        ("lab03", "dp=2,m=2", "--batch 3"),
        ("lab03", "dp=2,m=2", "--global-batch 8"),
        ("lab04", "dp=2,zero=3", "--offload cpu"),
        ("lab05", "tp=2", "--batch 3"),
        ("lab05", "dp=2,tp=2,zero=1", "--offload cpu"),
        ("lab06", "pp=2", "--micro-batches 3"),
        ("lab07", "dp=2,pp=2", "--micro-batches 3"),
        ("lab12", "dp=2,cp=2", "--batch 5"),
    ] {
        let dry = |flag: &str| {
            let screen = succeeded(&lab(name, &format!("--dry-run --strategy {text} {flag}")));
            // What follows is of this moment.
            screen.split("\n  free  ").next().unwrap_or_default().to_owned()
        };
        assert_ne!(dry(flag), dry(""), "{name} {text} {flag}");
    }
}
