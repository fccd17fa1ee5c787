//! The cases of the explorer of pipeline schedules: the orders of thousands of steps in one small
//! file.
//!
//! The figure's script (`book/figures/schedule.js`) decodes the file and plays the orders through:
//! it knows no schedule. book/browse.py compares its times with the library's. Numbers are in
//! base 64 with a variable length, as in source maps: a digit holds 5 bits, the lowest first, and
//! 32 more says that one more digit follows.

use super::cases::json_of;
use anyhow::Result;
use indexmap::IndexSet;
use itertools::iproduct;
use kit::flags::with_flags;
use kit::show::percent;
use serde_json::{Value, json};
use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Times, Work, simulate};
use std::ops::RangeInclusive;

const RANKS: RangeInclusive<usize> = 2..=8;
const CHUNKS: RangeInclusive<usize> = 1..=4;
const MICRO_BATCHES: RangeInclusive<usize> = 1..=16;

/// The time of a backward pass, in forward passes.
const RATIOS: [f64; 4] = [1.0, 1.5, 2.0, 3.0];

const NAMES: [&str; 5] = [
    "gpipe",
    "1f1b",
    "interleaved, depth-first",
    "interleaved, breadth-first",
    "zero-bubble",
];

/// The schedule with this name. Interleaved groups are as small as they can be, or a single group
/// has all micro-batches.
fn schedule(name: usize, pipeline: &Pipeline) -> Schedule {
    match name {
        0 => Schedule::GPipe,
        1 => Schedule::OneForwardOneBackward,
        2 => Schedule::depth_first(pipeline),
        3 => Schedule::Interleaved { group: pipeline.micro_batches },
        _ => Schedule::ZeroBubble,
    }
}

/// The times of passes, in forward passes of a chunk. Zero-bubble cuts a backward pass into two
/// halves that take equally long.
fn times(schedule: Schedule, ratio: f64) -> Times {
    let halved = schedule == Schedule::ZeroBubble;
    let backward = if halved { ratio / 2.0 } else { ratio };
    let weights = if halved { backward } else { 0.0 };
    Times { forward: 1.0, backward, weights, message: 0.0 }
}

/// All cases that a reader can choose, as JSON with one case per line:
///
/// - `ranks`, `chunks`, `micro`, `ratios`, `names`: the values of the controls
/// - `needs`: for each number of ranks, and then of chunks: for each kind of pass, rank and chunk,
///   how many passes it needs, and of each of these the kind, the rank and the chunk
/// - `orders`: a rank's passes, each as (micro-batch * chunks + chunk) * 3 + kind
/// - `refusals`: why a schedule refuses a pipeline, and what would do
/// - `cases`: for each schedule, and then for each number of ranks, chunks and micro-batches: the
///   number of its refusal, or the number of each rank's order
pub(super) fn cases() -> Result<String> {
    // Different texts, each once and with its number.
    let mut orders = IndexSet::new();
    let mut refusals = IndexSet::new();
    let mut cases = Vec::new();
    let all = iproduct!(0..NAMES.len(), RANKS, CHUNKS, MICRO_BATCHES);
    for (name, ranks, chunks, micro_batches) in all {
        let pipeline = Pipeline { ranks, chunks, micro_batches };
        cases.push(match schedule(name, &pipeline).orders(&pipeline) {
            Err(refusal) => json!(refusals.insert_full(words(&refusal)).0),
            Ok(passes) => {
                let texts = passes.iter().map(|order| packed_order(order, chunks));
                json!(packed(texts.map(|text| orders.insert_full(text).0)))
            }
        });
    }
    let needs = iproduct!(RANKS, CHUNKS)
        .map(|(ranks, chunks)| json!(needs_of(&Pipeline { ranks, chunks, micro_batches: 1 })));
    let values = |range: RangeInclusive<usize>| range.map(Value::from).collect();
    Ok(json_of([
        ("ranks", values(RANKS)),
        ("chunks", values(CHUNKS)),
        ("micro", values(MICRO_BATCHES)),
        ("ratios", RATIOS.map(Value::from).to_vec()),
        ("names", NAMES.map(Value::from).to_vec()),
        ("needs", needs.collect()),
        ("orders", orders.into_iter().map(Value::from).collect()),
        ("refusals", refusals.into_iter().map(Value::from).collect()),
        ("cases", cases),
    ]))
}

/// A refusal as lab06 prints it: the page's reader has flags.
fn words(refusal: &impl ToString) -> String {
    with_flags(&refusal.to_string())
}

/// Some of the cases as the library computes them, not packed: book/browse.py compares them with
/// the figure's.
pub(super) fn numbers() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (i, (ranks, chunks)) in iproduct!([2, 4, 8], [1, 2, 4]).enumerate() {
        for (name, micro_batches) in iproduct!(0..NAMES.len(), [1, 4, 6, 16]) {
            let pipeline = Pipeline { ranks, chunks, micro_batches };
            let schedule = schedule(name, &pipeline);
            let ratio = RATIOS[(i + micro_batches / 2) % RATIOS.len()];
            let mut row = json!({
                "schedule": NAMES[name], "ranks": ranks, "chunks": chunks, "micro": micro_batches, "ratio": ratio,
            });
            let found = match schedule.orders(&pipeline) {
                Err(refusal) => json!({ "refusal": words(&refusal) }),
                Ok(orders) => {
                    let simulated = simulate(&pipeline, &orders, &times(schedule, ratio))?;
                    let needs = |(rank, op): (usize, &Op)| {
                        let needs: Vec<_> = pipeline
                            .needs(rank, *op)
                            .map(|(rank, op)| json!([rank, op.to_string()]))
                            .collect();
                        json!([op.to_string(), needs])
                    };
                    let passes = |(rank, order): (usize, &Vec<Op>)| {
                        order.iter().map(|op| needs((rank, op))).collect()
                    };
                    json!({
                        "passes": orders.iter().enumerate().map(passes).collect::<Vec<Vec<_>>>(),
                        "starts": simulated.starts, "peaks": simulated.peaks,
                        "took": [simulated.makespan, simulated.busy],
                        "bubble": [percent(simulated.bubble()), percent(simulated.bubble_to_work())],
                    })
                }
            };
            row["found"] = found;
            all.push(row);
        }
    }
    Ok(all)
}

/// One rank's passes.
fn packed_order(order: &[Op], chunks: usize) -> String {
    let pass = |op: &Op| (op.micro * chunks + op.chunk) * Work::ALL.len() + op.work as usize;
    packed(order.iter().map(pass))
}

/// The passes that each pass of a micro-batch needs.
fn needs_of(pipeline: &Pipeline) -> String {
    let mut all = Vec::new();
    for (work, rank, chunk) in iproduct!(Work::ALL, 0..pipeline.ranks, 0..pipeline.chunks) {
        let needed: Vec<_> = pipeline.needs(rank, Op { work, chunk, micro: 0 }).collect();
        all.push(needed.len());
        all.extend(needed.iter().flat_map(|&(rank, op)| [op.work as usize, rank, op.chunk]));
    }
    packed(all)
}

/// Numbers in base 64, each with as many digits as it needs.
fn packed(numbers: impl IntoIterator<Item = usize>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for mut number in numbers {
        while number >= 32 {
            text.push(DIGITS[32 + number % 32] as char);
            number /= 32;
        }
        text.push(DIGITS[number] as char);
    }
    text
}
