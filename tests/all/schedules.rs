//! The data of the explorer of schedules, decoded here as its script decodes it: every order
//! against the library's. The times that the script makes of them are compared in the browser
//! (`book/browse.py`).

use serde_json::Value;
use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Work};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static DATA: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&book::cases("schedule").unwrap()).unwrap());

/// Numbers in base 64: a digit holds 5 bits, the lowest first, and a digit from 32 on is not the
/// last one of its number.
fn unpacked(text: &str) -> Vec<usize> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => panic!("{} is no digit", letter as char),
    };
    let mut numbers = Vec::new();
    let mut bits = 0;
    let mut number = 0;
    for digit in text.bytes().map(digit) {
        number |= usize::from(digit & 31) << bits;
        bits += 5;
        if digit < 32 {
            numbers.push(number);
            (bits, number) = (0, 0);
        }
    }
    assert_eq!(bits, 0, "{text} ends within a number");
    numbers
}

fn list(name: &str) -> &'static [Value] {
    DATA[name].as_array().expect(name)
}

fn numbers(name: &str) -> Vec<usize> {
    list(name).iter().map(|value| value.as_u64().unwrap() as usize).collect()
}

fn text(name: &str, index: usize) -> &'static str {
    list(name)[index].as_str().unwrap()
}

/// The schedule and the pipeline of each case, in the file's order.
fn cases() -> Vec<(&'static str, Schedule, Pipeline)> {
    let mut all = Vec::new();
    for name in list("names").iter().map(|name| name.as_str().unwrap()) {
        for (ranks, chunks) in numbers("ranks")
            .into_iter()
            .flat_map(|r| numbers("chunks").into_iter().map(move |c| (r, c)))
        {
            for micro_batches in numbers("micro") {
                let schedule = match name {
                    "gpipe" => Schedule::GPipe,
                    "1f1b" => Schedule::OneForwardOneBackward,
                    "interleaved, depth-first" => Schedule::Interleaved { group: ranks },
                    "interleaved, breadth-first" => Schedule::Interleaved { group: micro_batches },
                    "zero-bubble" => Schedule::ZeroBubble,
                    _ => panic!("{name}"),
                };
                all.push((name, schedule, Pipeline { ranks, chunks, micro_batches }));
            }
        }
    }
    all
}

#[test]
fn every_case_of_the_explorer_is_what_the_library_computes() {
    let mut accepted = BTreeSet::new();
    let mut refused = BTreeSet::new();
    let cases = cases();
    assert_eq!(cases.len(), list("cases").len());
    for ((name, schedule, pipeline), case) in cases.into_iter().zip(list("cases")) {
        let what = format!("{name} {pipeline:?}");
        let orders = match (schedule.orders(&pipeline), case.as_u64()) {
            (Ok(orders), None) => orders,
            (Err(refusal), Some(number)) => {
                assert_eq!(
                    text("refusals", number as usize),
                    kit::flags::with_flags(&refusal.to_string()),
                    "{what}"
                );
                refused.insert(number as usize);
                continue;
            }
            (found, case) => panic!("{what}: {found:?} against {case:?}"),
        };
        let packed: Vec<Vec<Op>> = unpacked(case.as_str().unwrap())
            .into_iter()
            .map(|number| order(number, pipeline.chunks))
            .collect();
        assert_eq!(packed, orders, "{what}");
        accepted.insert(name);
    }
    let names: BTreeSet<&str> = list("names").iter().filter_map(Value::as_str).collect();
    assert_eq!(accepted, names, "schedules that run");
    assert_eq!(refused, (0..list("refusals").len()).collect(), "refusals that some case has");
}

fn order(number: usize, chunks: usize) -> Vec<Op> {
    let op = |number: usize| {
        let work = [Work::Forward, Work::Backward, Work::Weights][number % 3];
        Op { work, chunk: number / 3 % chunks, micro: number / 3 / chunks }
    };
    unpacked(text("orders", number)).into_iter().map(op).collect()
}

#[test]
fn the_explorer_has_what_each_pass_needs() {
    let mut all = list("needs").iter();
    for (ranks, chunks) in numbers("ranks")
        .into_iter()
        .flat_map(|r| numbers("chunks").into_iter().map(move |c| (r, c)))
    {
        let pipeline = Pipeline { ranks, chunks, micro_batches: 1 };
        let mut packed = unpacked(all.next().unwrap().as_str().unwrap()).into_iter();
        let mut next = || packed.next().unwrap();
        let kinds = [Work::Forward, Work::Backward, Work::Weights];
        for (work, rank) in
            kinds.into_iter().flat_map(|work| (0..ranks).map(move |rank| (work, rank)))
        {
            for chunk in 0..chunks {
                let needs: Vec<_> = pipeline.needs(rank, Op { work, chunk, micro: 0 }).collect();
                let found: Vec<_> = (0..next())
                    .map(|_| [next(), next(), next()])
                    .map(|[kind, rank, chunk]| (rank, Op { work: kinds[kind], chunk, micro: 0 }))
                    .collect();
                assert_eq!(found, needs, "{pipeline:?} {work:?} rank {rank} chunk {chunk}");
            }
        }
        assert_eq!(packed.next(), None);
    }
}
