//! Pipeline schedules: orders and times, against Megatron-LM's and published figures.

use crate::suite::pipeline::{
    meshes_train_what_one_rank_trains, pipelines_train_what_one_rank_trains,
};
use labs::lab06::log_number;
use shardlab::launch;
use shardlab::mesh::Coordinates;
use shardlab::parallel::pipeline::{Instruction, Op, Pipeline, Schedule, Times, Work, simulate};
use std::collections::HashMap;

const UNIT: Times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };

fn pipeline(ranks: usize, chunks: usize, micro_batches: usize) -> Pipeline {
    Pipeline { ranks, chunks, micro_batches }
}

fn in_words(order: &[Op]) -> String {
    order.iter().map(Op::to_string).collect::<Vec<_>>().join(" ")
}

/// Every shape that a test goes through, with each schedule that accepts it.
fn accepted() -> Vec<(Pipeline, Schedule)> {
    let mut all = Vec::new();
    for (ranks, micro_batches) in (1..=8).flat_map(|p| (1..=16).map(move |m| (p, m))) {
        for chunks in 1..=4 {
            let pipeline = pipeline(ranks, chunks, micro_batches);
            let plain = [Schedule::GPipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubble];
            let groups = (1..=micro_batches).map(|group| Schedule::Interleaved { group });
            let schedules = plain
                .into_iter()
                .chain(groups)
                .filter(|schedule| schedule.check(&pipeline).is_ok());
            all.extend(schedules.map(|schedule| (pipeline, schedule)));
        }
    }
    all
}

#[test]
fn interleaved_is_megatrons() {
    let p = pipeline(2, 2, 4);
    let schedule = Schedule::Interleaved { group: 2 };
    let orders = schedule.orders(&p).unwrap();
    assert_eq!(
        in_words(&orders[0]),
        "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3"
    );
    assert_eq!(
        in_words(&orders[1]),
        "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"
    );
    let p = pipeline(4, 2, 8);
    let schedule = Schedule::depth_first(&p);
    assert_eq!((0..4).map(|rank| schedule.warm_up(&p, rank)).collect::<Vec<_>>(), [10, 8, 6, 4]);
}

/// The last rank of the source's job, pass by pass, with the numbers of its log.
#[test]
fn the_sources_last_stage_is_breadth_first() {
    let p = pipeline(4, 4, 8);
    let order = Schedule::Interleaved { group: 8 }.order(&p, 3);
    let numbered = order.iter().map(|&op| match op.work {
        Work::Forward => format!("F{}", log_number(&p, op)),
        _ => format!("B{}", log_number(&p, op)),
    });
    assert_eq!(
        numbered.collect::<Vec<_>>().join(" "),
        "F0 F1 F2 F3 F16 F17 F18 F19 F4 F5 F6 F7 F20 F21 F22 F23 F8 F9 F10 F11 F24 F25 F26 F27 F12 B0 F13 B1 F14 B2 F15 B3 \
         F28 B16 F29 B17 F30 B18 F31 B19 B4 B5 B6 B7 B20 B21 B22 B23 B8 B9 B10 B11 B24 B25 B26 B27 B12 B13 B14 B15 B28 B29 \
         B30 B31"
    );
    // For each number the formulas of the classic grouping.
    for &op in &order {
        let k = log_number(&p, op);
        let chunk = k % 16 / 4;
        let chunk = if op.work == Work::Forward { chunk } else { 3 - chunk };
        assert_eq!((op.micro, op.chunk), (4 * (k / 16) + k % 4, chunk));
    }
}

#[test]
fn each_pass_runs_once_and_after_what_it_needs() {
    for (p, schedule) in accepted() {
        let orders = schedule.orders(&p).unwrap();
        let split = schedule == Schedule::ZeroBubble;
        for order in &orders {
            let times = |op: Op| order.iter().filter(|&&other| other == op).count();
            for (chunk, micro) in (0..p.chunks)
                .flat_map(|chunk| (0..p.micro_batches).map(move |micro| (chunk, micro)))
            {
                let of = [
                    Op::forward(chunk, micro),
                    Op::backward(chunk, micro),
                    Op::weights(chunk, micro),
                ]
                .map(times);
                assert_eq!(of, [1, 1, usize::from(split)], "{p:?} {schedule:?}");
            }
        }
        let simulated = simulate(&p, &orders, &UNIT)
            .unwrap_or_else(|deadlock| panic!("{p:?} {schedule:?}: {deadlock}"));
        let ends: HashMap<(usize, Op), f64> = (orders.iter().zip(&simulated.starts).enumerate())
            .flat_map(|(rank, (order, starts))| {
                order.iter().zip(starts).map(move |(&op, &start)| ((rank, op), start))
            })
            .collect();
        for (&(rank, op), &start) in &ends {
            for (other, needed) in p.needs(rank, op) {
                let took = if needed.work == Work::Forward { 1.0 } else { 2.0 };
                assert!(
                    ends[&(other, needed)] + took <= start,
                    "{p:?} {schedule:?}: rank {rank} runs {op} too early"
                );
            }
        }
    }
}

/// For each pair of ranks, what one sends is what the other receives.
#[test]
fn messages_have_two_ends() {
    for (p, schedule) in accepted() {
        let orders = schedule.orders(&p).unwrap();
        let mut open: HashMap<(usize, usize, Op), i32> = HashMap::new();
        for (rank, order) in orders.iter().enumerate() {
            for instruction in p.with_messages(rank, order) {
                match instruction {
                    Instruction::Compute(_) => {}
                    Instruction::Send { op, to } => *open.entry((rank, to, op)).or_default() += 1,
                    Instruction::Recv { op, from } => {
                        *open.entry((from, rank, op)).or_default() -= 1
                    }
                }
            }
        }
        assert!(open.values().all(|&balance| balance == 0), "{p:?} {schedule:?}");
        let between = if p.ranks == 1 {
            0
        } else {
            2 * (p.stages() - 1) * p.micro_batches
        };
        assert_eq!(
            open.len(),
            between,
            "{p:?} {schedule:?}: one message per stage boundary, pass and micro-batch"
        );
    }
}

#[test]
fn times_are_the_published_ones() {
    let took = |p: Pipeline, schedule: Schedule, backward: f64| {
        let chunks = p.chunks as f64;
        let times = Times { forward: 1.0 / chunks, backward: backward / chunks, ..UNIT };
        simulate(&p, &schedule.orders(&p).unwrap(), &times).unwrap()
    };
    for (backward, expected) in [(2.0, [33.0, 33.0, 28.5, 26.25]), (1.0, [22.0, 22.0, 19.0, 17.5])]
    {
        let runs = [
            (pipeline(4, 1, 8), Schedule::GPipe),
            (pipeline(4, 1, 8), Schedule::OneForwardOneBackward),
            (pipeline(4, 2, 8), Schedule::Interleaved { group: 4 }),
            (pipeline(4, 4, 8), Schedule::Interleaved { group: 4 }),
        ];
        assert_eq!(runs.map(|(p, schedule)| took(p, schedule, backward).makespan), expected);
        for (p, schedule) in runs {
            let run = took(p, schedule, backward);
            let ranks = p.ranks as f64;
            let visits = (p.micro_batches * p.chunks) as f64;
            assert!((run.bubble_to_work() - (ranks - 1.0) / visits).abs() < 1e-12);
            assert!((run.bubble() - (ranks - 1.0) / (visits + ranks - 1.0)).abs() < 1e-12);
        }
    }
    assert_eq!(took(pipeline(8, 2, 16), Schedule::Interleaved { group: 8 }, 2.0).makespan, 58.5);
    assert_eq!(took(pipeline(4, 2, 4), Schedule::Interleaved { group: 4 }, 2.0).makespan, 16.5);
    assert_eq!(took(pipeline(4, 1, 8), Schedule::GPipe, 2.0).peaks, [8, 8, 8, 8]);
    assert_eq!(
        took(pipeline(4, 1, 8), Schedule::OneForwardOneBackward, 2.0).peaks,
        [4, 3, 2, 1]
    );
    assert_eq!(
        took(pipeline(4, 2, 8), Schedule::Interleaved { group: 4 }, 2.0).peaks,
        [11, 9, 7, 5]
    );
    // The same time for both, in contrast to a common belief: only their memory differs.
    assert_eq!(took(pipeline(8, 1, 32), Schedule::GPipe, 1.0).makespan, 78.0);
    assert_eq!(took(pipeline(8, 1, 32), Schedule::OneForwardOneBackward, 1.0).makespan, 78.0);
}

/// ZB-H1's bubble is (p-1)(F + B - W), with as much memory on every rank as on 1F1B's first.
#[test]
fn weight_gradients_fill_the_bubble() {
    for (ranks, micro_batches) in (1..=8).flat_map(|p| (p..=2 * p + 1).map(move |m| (p, m))) {
        let p = pipeline(ranks, 1, micro_batches);
        let times = Times { forward: 1.0, backward: 1.0, weights: 1.0, message: 0.0 };
        let run = simulate(&p, &Schedule::ZeroBubble.orders(&p).unwrap(), &times).unwrap();
        assert_eq!(run.makespan - run.busy, (ranks - 1) as f64, "{p:?}");
        // What a backward pass has kept for the weights' gradients counts until these are computed.
        assert_eq!(run.peaks, vec![ranks; ranks], "{p:?}");
    }
}

/// A message's time delays the rank that needs it: down the pipeline and back, once per rank but
/// the first.
#[test]
fn messages_take_their_time() {
    let p = pipeline(4, 1, 1);
    let run = simulate(
        &p,
        &Schedule::OneForwardOneBackward.orders(&p).unwrap(),
        &Times { message: 0.5, ..UNIT },
    )
    .unwrap();
    assert_eq!(run.makespan, 4.0 * 3.0 + 2.0 * 3.0 * 0.5);
}

#[test]
fn groups_that_would_wait_for_each_other_are_refused_and_the_deadlock_is_named() {
    let refused = |ranks, micro_batches, group| {
        Schedule::Interleaved { group }
            .check(&pipeline(ranks, 2, micro_batches))
            .unwrap_err()
            .to_string()
    };
    assert!(refused(4, 6, 2).starts_with(
        "groups of 2 micro-batches, with 4 ranks and 6 micro-batches\nhelp: a group has"
    ));
    assert!(
        refused(4, 3, 4).contains("at least as many micro-batches as ranks: `micro_batches` 4")
    );
    let rest = refused(4, 10, 4);
    assert!(
        rest.starts_with("10 micro-batches in groups of 4 leave a group of 2, for 4 ranks\n"),
        "{rest}"
    );
    assert!(rest.ends_with("`micro_batches` 8, or 12"), "{rest}");
    for shape in [(0, 1, 1), (1, 0, 1), (1, 1, 0)] {
        let nothing = Schedule::OneForwardOneBackward
            .check(&pipeline(shape.0, shape.1, shape.2))
            .unwrap_err();
        assert!(nothing.what.ends_with("has nothing to do"), "{nothing}");
    }
    assert!(
        Schedule::GPipe
            .check(&pipeline(2, 2, 4))
            .unwrap_err()
            .what
            .starts_with("gpipe runs 1 chunk per rank, not 2")
    );

    let p = pipeline(4, 2, 6);
    let orders: Vec<_> =
        (0..4).map(|rank| Schedule::Interleaved { group: 2 }.order(&p, rank)).collect();
    let deadlock = simulate(&p, &orders, &UNIT).unwrap_err();
    for (rank, op, (other, needed)) in &deadlock.stuck {
        assert!(p.needs(*rank, *op).any(|need| need == (*other, *needed)), "{deadlock}");
    }
    assert!(
        deadlock
            .to_string()
            .starts_with("deadlock: 4 ranks wait for passes that never run\nrank 0: F"),
        "{deadlock}"
    );
}

#[test]
fn pipelines_of_2_to_4_ranks_train_what_one_rank_trains() {
    for ranks in [2, 3, 4] {
        launch::run(ranks, |comm| pipelines_train_what_one_rank_trains(&comm)).unwrap();
    }
}

#[test]
fn meshes_of_three_axes_train_what_one_rank_trains() {
    for [data, pipeline, tensor] in [[2, 2, 2], [1, 2, 4], [3, 2, 1], [1, 4, 2]] {
        let sizes = Coordinates { data, pipeline, tensor };
        launch::run(data * pipeline * tensor, |comm| {
            meshes_train_what_one_rank_trains(&comm, sizes)
        })
        .unwrap();
    }
}

/// Four million passes. An optimized build takes about a second.
#[test]
fn a_large_pipeline_is_simulated() {
    let p = pipeline(64, 8, 4096);
    let orders = Schedule::depth_first(&p).orders(&p).unwrap();
    let start = std::time::Instant::now();
    let simulated = simulate(&p, &orders, &UNIT).unwrap();
    println!(
        "{} passes in {:.2?}",
        orders.iter().map(Vec::len).sum::<usize>(),
        start.elapsed()
    );
    let formula = 63.0 / (4096.0 * 8.0 + 63.0);
    assert!((simulated.bubble() - formula).abs() < 1e-9, "{} {formula}", simulated.bubble());
}
