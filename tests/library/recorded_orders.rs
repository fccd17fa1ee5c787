//! Orders of passes that Megatron-LM and PyTorch compute, beside this library's. The files in
//! `orders/` say where theirs come from and how they are written.

use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Times, Work, simulate};
use std::collections::HashMap;

const MEGATRON: &str = include_str!("orders/megatron.txt");
const TORCH: &str = include_str!("orders/torch.txt");

/// The times of the makespans in Megatron's file.
const UNIT: Times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };

/// One case of a file: its first line, and one line per rank.
struct Case {
    line: &'static str,
    orders: Vec<&'static str>,
}

impl Case {
    fn all(file: &'static str) -> Vec<Case> {
        let mut cases: Vec<Case> = Vec::new();
        for line in file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if line.contains(" p=") {
                cases.push(Case { line, orders: Vec::new() });
            } else {
                cases.last_mut().expect("a case before its orders").orders.push(line);
            }
        }
        cases
    }

    fn kind(&self) -> &str {
        self.line.split(' ').next().unwrap()
    }

    /// The word after `name=`.
    fn word(&self, name: &str) -> &str {
        let found =
            self.line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {}", self.line))
    }

    fn number(&self, name: &str) -> usize {
        self.word(name).parse().unwrap()
    }

    fn numbers(&self, name: &str) -> Vec<usize> {
        self.word(name).split(',').map(|number| number.parse().unwrap()).collect()
    }

    fn pipeline(&self) -> Pipeline {
        Pipeline {
            ranks: self.number("p"),
            chunks: self.number("v"),
            micro_batches: self.number("m"),
        }
    }

    fn schedule(&self) -> Schedule {
        match self.kind() {
            "gpipe" => Schedule::GPipe,
            "1f1b" => Schedule::OneForwardOneBackward,
            "zero-bubble" => Schedule::ZeroBubble,
            "interleaved" | "refused" => Schedule::Interleaved { group: self.number("group") },
            other => panic!("{other} is no kind of case"),
        }
    }
}

/// The passes of a rank's line.
fn passes(line: &str) -> Vec<Op> {
    let mut next: HashMap<char, usize> = HashMap::new();
    let mut all = Vec::new();
    let mut jump = None;
    let mut rest = line;
    while let Some(letter) = rest.chars().next() {
        if letter == '(' {
            let (number, after) = rest[1..].split_once(')').expect("a number in brackets");
            jump = Some(number.parse().unwrap());
            rest = after;
            continue;
        }
        let micro = jump.take().unwrap_or_else(|| next.get(&letter).copied().unwrap_or(0));
        next.insert(letter, micro + 1);
        let chunk = |first: char| letter as usize - first as usize;
        all.push(match letter {
            'A'..='Z' => Op::forward(chunk('A'), micro),
            'a'..='z' => Op::backward(chunk('a'), micro),
            _ => Op::weights(chunk('0'), micro),
        });
        rest = &rest[1..];
    }
    all
}

#[test]
fn a_line_is_read_as_its_file_says() {
    let read = passes("AB(1)Aab0").iter().map(Op::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(read, "F0.0 F1.0 F0.1 B0.0 B1.0 W0.0");
}

/// All orders, times and memory that Megatron-LM computes, and the cases that it refuses.
#[test]
fn every_case_of_megatrons_is_equal() {
    let mut compared = 0;
    let mut refused = 0;
    for case in Case::all(MEGATRON) {
        let p = case.pipeline();
        let schedule = case.schedule();
        if case.kind() == "refused" {
            assert!(schedule.check(&p).is_err(), "{}", case.line);
            refused += 1;
            continue;
        }
        let orders = schedule.orders(&p).unwrap_or_else(|error| panic!("{}: {error}", case.line));
        assert_eq!(orders.len(), case.orders.len(), "{}", case.line);
        for (rank, (ours, theirs)) in orders.iter().zip(&case.orders).enumerate() {
            assert_eq!(*ours, passes(theirs), "{} rank {rank}", case.line);
            assert_eq!(
                schedule.warm_up(&p, rank),
                case.numbers("warmup")[rank],
                "{} rank {rank}",
                case.line
            );
            compared += 1;
        }
        let run = simulate(&p, &orders, &UNIT).unwrap();
        assert_eq!(run.makespan, case.number("makespan") as f64, "{}", case.line);
        assert_eq!(run.peaks, case.numbers("peaks"), "{}", case.line);
    }
    assert_eq!((compared, refused), (384, 56));
}

/// All orders that PyTorch computes. Its table of 1F1B has an error on each last rank, which the
/// file explains.
#[test]
fn every_case_of_pytorchs_is_equal() {
    let mut compared: HashMap<&str, usize> = HashMap::new();
    let mut wrong = Vec::new();
    let cases = Case::all(TORCH);
    for case in &cases {
        let p = case.pipeline();
        let orders = case
            .schedule()
            .orders(&p)
            .unwrap_or_else(|error| panic!("{}: {error}", case.line));
        assert_eq!(orders.len(), case.orders.len(), "{}", case.line);
        for (rank, (ours, theirs)) in orders.iter().zip(&case.orders).enumerate() {
            let mut theirs = passes(theirs);
            if *ours != theirs && case.kind() == "1f1b" && rank + 1 == p.ranks {
                wrong.push(format!("p={} m={} rank {rank}", p.ranks, p.micro_batches));
                for pass in theirs.iter_mut().filter(|pass| pass.work == Work::Forward) {
                    pass.micro = pass.micro.wrapping_sub(1); // counted from 1
                }
            } else {
                *compared.entry(case.kind()).or_default() += 1;
            }
            assert_eq!(*ours, theirs, "{} rank {rank}", case.line);
        }
    }
    assert_eq!(
        compared,
        HashMap::from([("gpipe", 68), ("1f1b", 52), ("interleaved", 390), ("zero-bubble", 88)])
    );
    let known = [
        "p=2 m=2 rank 1",
        "p=2 m=3 rank 1",
        "p=2 m=4 rank 1",
        "p=2 m=6 rank 1",
        "p=3 m=3 rank 2",
        "p=3 m=4 rank 2",
        "p=3 m=6 rank 2",
        "p=3 m=9 rank 2",
        "p=4 m=4 rank 3",
        "p=4 m=5 rank 3",
        "p=4 m=8 rank 3",
        "p=4 m=12 rank 3",
        "p=8 m=8 rank 7",
        "p=8 m=9 rank 7",
        "p=8 m=16 rank 7",
        "p=8 m=24 rank 7",
    ];
    assert_eq!(wrong, known);
}
