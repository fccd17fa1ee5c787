//! The pipeline of a real log: 8 ranks (tensor 2, pipeline 4), 4 chunks per rank, 8 micro-batches, and a dynamic order. Its
//! last lines are those of two tensor ranks that run different passes.

use crate::suite::parity::config;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::mesh::{Coordinates, Layout, Mesh, Order};
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::pipeline::{
    Choice, Chosen, Disagreement, Op, Partition, Pipeline, Schedule, Times, Uneven, Work, simulate, simulate_uneven,
};
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::{Config, PipelinePlan, Pipelined, unpipelined};

const JOB: Pipeline = Pipeline { ranks: 4, chunks: 4, micro_batches: 8 };
const GROUPS_OF_8: Schedule = Schedule::Interleaved { group: 8 };

/// The log's second iteration on rank 6, up to the log's end.
const LOG: &str = "F0 F1 F2 F3 F16 F17 F18 F19 F4 F5 F6 F7 F20 F21 F22 F23 F8 F9 F10 F11 F24 F25 F26 F27 F12 B0 F13 B1 F14 B2 \
                   F15 B3 F28";

/// The passes as the log names them.
fn in_log(order: &[Op]) -> String {
    let name = |op: &Op| format!("{}{}", if op.work == Work::Forward { "F" } else { "B" }, JOB.log_number(*op));
    order.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Forward passes take 1, backward passes 2, and messages 0.1. One message is late: the activations of micro-batch 4 that
/// rank 7, or both ranks of its tensor group, need for the log's forward pass 28.
fn run(choice: Choice, late: f64, on: &[usize]) -> Result<Chosen, Disagreement> {
    let pass = |_: usize, op: Op| if op.work == Work::Forward { 1.0 } else { 2.0 };
    let message = |tensor: usize, from: usize, op: Op| {
        if (from, op) == (2, Op::forward(3, 4)) && on.contains(&tensor) { late } else { 0.1 }
    };
    simulate_uneven(&JOB, &GROUPS_OF_8.orders(&JOB).unwrap(), 2, choice, &Uneven { pass: &pass, message: &message })
}

#[test]
fn one_late_message_ends_the_job_as_the_log_ends() {
    let disagreement = run(Choice::Alone, 3.0, &[1]).unwrap_err();
    let Disagreement { rank, choices, before } = &disagreement;
    // Ranks 6 and 7. Rank 7 has its gradient for the backward pass 4, chunk 2 and micro-batch 0, but not yet the activations.
    assert_eq!((*rank, in_log(choices).as_str()), (3, "F28 B4"));
    assert_eq!(in_log(&before.orders[3]) + " F28", LOG);
    let text =
        "the tensor ranks of pipeline rank 3 run different passes\ntensor rank 0: F3.4\ntensor rank 1: B2.0\nhelp: ";
    assert!(disagreement.to_string().starts_with(text), "{disagreement}");

    // One rank chooses, or none: then nothing happens but a wait.
    for choice in [Choice::Agreed, Choice::Schedule] {
        assert_eq!(run(choice, 3.0, &[1]).unwrap().orders, GROUPS_OF_8.orders(&JOB).unwrap(), "{choice:?}");
    }
}

/// A message that is late on both tensor ranks: a backward pass fills the wait.
#[test]
fn an_agreed_choice_fills_waits() {
    let [fixed, agreed] = [Choice::Schedule, Choice::Agreed].map(|choice| run(choice, 9.0, &[0, 1]).unwrap());
    assert!(in_log(&agreed.orders[3]).contains("B3 B4 B5 "), "{}", in_log(&agreed.orders[3]));
    assert!(agreed.makespan < fixed.makespan, "{} {}", agreed.makespan, fixed.makespan);
}

/// Without uneven times the schedule's next pass is the first that can run, or the wait is the same.
#[test]
fn the_schedules_choice_takes_the_simulated_time() {
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.1 };
    let simulated = simulate(&JOB, &GROUPS_OF_8.orders(&JOB).unwrap(), &times).unwrap();
    assert!((run(Choice::Schedule, 0.1, &[]).unwrap().makespan - simulated.makespan).abs() < 1e-9);
}

/// Whatever the times are: all passes run, each after what it needs, with no more activations than under the schedule.
#[test]
fn dynamic_orders_end_and_keep_no_more() {
    for (ranks, chunks, micro_batches) in [(2, 1, 3), (3, 1, 7), (4, 1, 2), (2, 3, 5), (3, 2, 6), (4, 4, 8), (5, 2, 10)]
    {
        let p = Pipeline { ranks, chunks, micro_batches };
        let group = if chunks > 1 { micro_batches } else { 1 };
        let schedule = if chunks > 1 { Schedule::Interleaved { group } } else { Schedule::OneForwardOneBackward };
        let orders = schedule.orders(&p).unwrap();
        let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
        let most = simulate(&p, &orders, &times).unwrap().peaks;
        for seed in 0..40 {
            let uneven = |x: usize, op: Op| {
                let x = (x * 131 + op.micro * 31 + op.chunk * 7 + usize::from(op.work == Work::Backward)) as f64;
                5.0 * (x * 12.9898 + f64::from(seed) * 78.233).sin().abs()
            };
            let pass = |rank: usize, op: Op| 1.0 + uneven(rank, op);
            let message = |tensor: usize, rank: usize, op: Op| uneven(100 + 10 * tensor + rank, op);
            let times = Uneven { pass: &pass, message: &message };
            let run = simulate_uneven(&p, &orders, 3, Choice::Agreed, &times).unwrap();
            for (rank, (order, schedule)) in run.orders.iter().zip(&orders).enumerate() {
                let (mut kept, mut all) = (0, order.clone());
                for op in order {
                    kept = if op.work == Work::Forward { kept + 1 } else { kept - 1 };
                    assert!(kept <= most[rank], "{p:?}, seed {seed}, rank {rank}");
                }
                all.sort_by_key(|op| schedule.iter().position(|other| other == op));
                assert_eq!(&all, schedule, "{p:?}, seed {seed}, rank {rank}");
            }
            // The order can run: a pass never waits for one that comes later.
            simulate(&p, &run.orders, &Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 }).unwrap();
        }
    }
}

/// The job with 16 thin layers.
fn job() -> (Config, Vec<u32>) {
    let (config, corpus) = config(1, |config| {
        (config.grad_accum, config.batch) = (JOB.micro_batches, 1);
        (config.shape.layers, config.shape.embd, config.shape.block) = (16, 16, 8);
    });
    (config, corpus.train.clone())
}

fn pipelined(world: &Comm, config: &Config) -> anyhow::Result<(Mesh, Pipelined)> {
    let sizes = Coordinates { data: 1, pipeline: 4, tensor: 2 };
    let mesh = Mesh::new(world, Layout { sizes, order: Order::default() })?;
    let plan = PipelinePlan { pipeline: JOB, schedule: GROUPS_OF_8, partition: Partition::Uniform, recompute: 0 };
    let zero = ZeroConfig::new(Stage::Zero, Precision::F32, config.adamw);
    let pipelined = Pipelined::new(config, &mesh, &plan, (false, 1), zero)?;
    Ok((mesh, pipelined))
}

/// Ranks 6 and 7 run what they chose alone: the label of the first all-reduce shows it, on every rank.
#[test]
fn ranks_that_disagree_are_told_which_passes_they_run() {
    let (config, text) = job();
    let Disagreement { rank, choices, before } = run(Choice::Alone, 3.0, &[1]).unwrap_err();
    let error = launch::run(8, |world| {
        let (mesh, mut pipelined) = pipelined(&world, &config)?;
        if mesh.at.pipeline == rank {
            let schedule = GROUPS_OF_8.order(&JOB, rank);
            let mut order = before.orders[rank].clone();
            order.push(choices[mesh.at.tensor]);
            order.extend(schedule.iter().filter(|op| !order.contains(op)).copied().collect::<Vec<_>>());
            pipelined.program = JOB.with_messages(rank, &order);
        }
        pipelined.step(&text, 0, || 0)
    });
    let error = error.err().expect("an error").to_string();
    let first = error.lines().next().unwrap_or_default();
    for part in ["different calls", "\"forward pass\" in group tensor", "\"backward pass\" in group tensor"] {
        assert!(first.contains(part), "{part}: {error}");
    }
}

/// Messages really race here: whatever arrives first, tensor ranks run the same passes, and train the same bits.
#[test]
fn an_agreed_choice_trains_the_same_bits() {
    let (config, text) = job();
    let steps = 3;
    let one = unpipelined(&config, &text, steps).unwrap();
    launch::run(8, |world| {
        let trained = [None, Some(Choice::Agreed)].map(|choice| -> anyhow::Result<_> {
            let (mesh, mut pipelined) = pipelined(&world, &config)?;
            pipelined.dynamic = choice;
            // Uneven: the second rank of the pipeline is slow.
            let seconds = if mesh.at.pipeline == 1 { 4e-4 } else { 1e-4 };
            pipelined.stages.pace =
                Some(Times { forward: seconds, backward: 2.0 * seconds, weights: 0.0, message: 0.0 });
            let mut trained = Vec::new();
            for step in 0..steps {
                let stepped = pipelined.step(&text, step, || 0)?;
                let order: Vec<Op> = stepped.ran.passes.iter().map(|done| done.op).collect();
                let numbers =
                    order.iter().map(|&op| (JOB.log_number(op) * 2 + usize::from(op.work == Work::Forward)) as u64);
                let mine: Vec<u64> = numbers.collect();
                let mut most = mine.clone();
                mesh.group(shardlab::mesh::Axis::Tensor).all_reduce(&mut most, Reduce::Max)?;
                assert_eq!(mine, most, "the tensor ranks of {:?} run different passes", mesh.at);
                assert_eq!(mine.len(), 64);
                trained.push((stepped.loss, stepped.grad_norm));
            }
            Ok((trained, pipelined.stages.chunks[0].params.values().clone()))
        });
        let [fixed, dynamic] = trained;
        let (fixed, dynamic) = (fixed?, dynamic?);
        assert!(fixed == dynamic, "{:?} {:?}", fixed.0, dynamic.0);
        for (step, (loss, norm)) in dynamic.0.iter().enumerate() {
            assert!((loss - one.losses[step]).abs() < 1e-4, "step {step}: {loss} {}", one.losses[step]);
            assert!((norm - one.grad_norms[step]).abs() < 1e-4, "step {step}: {norm} {}", one.grad_norms[step]);
        }
        Ok(())
    })
    .unwrap();
}
