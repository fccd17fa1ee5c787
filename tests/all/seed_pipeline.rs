//! The pipeline of a real log: 8 ranks (tensor 2, pipeline 4), 4 chunks per rank, 8 micro-batches,
//! and a dynamic order. Its last lines are those of two tensor ranks that run different passes.

use labs::lab06::choice::{Choice, step_dynamic};
use labs::lab06::dynamic::{
    JOB, SCHEDULE, disagree, numbered, small_layers, strategy, train, with_a_late_message,
};
use labs::lab06::uneven::{Disagreement, Uneven, simulate_uneven};
use labs::lab06::{log_number, unpipelined};
use shardlab::comm::Reduce;
use shardlab::data::Corpus;
use shardlab::difference::largest_difference;
use shardlab::launch;
use shardlab::mesh::Axis;
use shardlab::parallel::pipeline::{Op, Pipeline, Schedule, Times, Work, simulate};
use shardlab::train::Training;

/// The log's second iteration on rank 6, up to the log's end.
const LOG: &str = "F0 F1 F2 F3 F16 F17 F18 F19 F4 F5 F6 F7 F20 F21 F22 F23 F8 F9 F10 F11 F24 F25 F26 F27 F12 B0 F13 B1 F14 B2 \
                   F15 B3 F28";

#[test]
fn one_late_message_ends_the_job_as_the_log_ends() {
    let disagreement = with_a_late_message(Choice::Alone, 3.0, &[1]).unwrap_err();
    let Disagreement { rank, choices, before } = &disagreement;
    // Ranks 6 and 7. Rank 7 has its gradient for the backward pass 4, chunk 2 and micro-batch 0,
    // but not yet the activations.
    assert_eq!((*rank, numbered(choices).as_str()), (3, "F28 B4"));
    assert_eq!(numbered(&before.orders[3]) + " F28", LOG);
    let text = "the tensor ranks of pipeline rank 3 run different passes\ntensor rank 0: F3.4\ntensor rank 1: B2.0\nhelp: ";
    assert!(disagreement.to_string().starts_with(text), "{disagreement}");

    // One rank chooses, or none: then nothing happens but a wait.
    for choice in [Choice::Agreed, Choice::Schedule] {
        assert_eq!(
            with_a_late_message(choice, 3.0, &[1]).unwrap().orders,
            SCHEDULE.orders(&JOB).unwrap(),
            "{choice:?}"
        );
    }
}

/// A message that is late on both tensor ranks: a backward pass fills the wait.
#[test]
fn an_agreed_choice_fills_waits() {
    let [fixed, agreed] = [Choice::Schedule, Choice::Agreed]
        .map(|choice| with_a_late_message(choice, 9.0, &[0, 1]).unwrap());
    assert!(
        numbered(&agreed.orders[3]).contains("B3 B4 B5 "),
        "{}",
        numbered(&agreed.orders[3])
    );
    assert!(agreed.makespan < fixed.makespan, "{} {}", agreed.makespan, fixed.makespan);
}

/// Without uneven times the schedule's next pass is the first that can run, or the wait is the
/// same.
#[test]
fn the_schedules_choice_takes_the_simulated_time() {
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.1 };
    let simulated = simulate(&JOB, &SCHEDULE.orders(&JOB).unwrap(), &times).unwrap();
    assert!(
        (with_a_late_message(Choice::Schedule, 0.1, &[]).unwrap().makespan - simulated.makespan)
            .abs()
            < 1e-9
    );
}

/// Whatever the times are: all passes run, each after what it needs, with no more activations than
/// under the schedule.
#[test]
fn dynamic_orders_end_and_keep_no_more() {
    for (ranks, chunks, micro_batches) in
        [(2, 1, 3), (3, 1, 7), (4, 1, 2), (2, 3, 5), (3, 2, 6), (4, 4, 8), (5, 2, 10)]
    {
        let p = Pipeline { ranks, chunks, micro_batches };
        let group = if chunks > 1 { micro_batches } else { 1 };
        let schedule = if chunks > 1 {
            Schedule::Interleaved { group }
        } else {
            Schedule::OneForwardOneBackward
        };
        let orders = schedule.orders(&p).unwrap();
        let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
        let most = simulate(&p, &orders, &times).unwrap().peaks;
        for seed in 0..40 {
            let uneven = |x: usize, op: Op| {
                let x = (x * 131
                    + op.micro * 31
                    + op.chunk * 7
                    + usize::from(op.work == Work::Backward)) as f64;
                5.0 * (x * 12.9898 + f64::from(seed) * 78.233).sin().abs()
            };
            let pass = |rank: usize, op: Op| 1.0 + uneven(rank, op);
            let message = |tensor: usize, rank: usize, op: Op| uneven(100 + 10 * tensor + rank, op);
            let times = Uneven { pass: &pass, message: &message };
            let run = simulate_uneven(&p, &orders, 3, Choice::Agreed, &times).unwrap();
            for (rank, (order, schedule)) in run.orders.iter().zip(&orders).enumerate() {
                let mut kept = 0;
                let mut all = order.clone();
                for op in order {
                    kept = if op.work == Work::Forward { kept + 1 } else { kept - 1 };
                    assert!(kept <= most[rank], "{p:?}, seed {seed}, rank {rank}");
                }
                all.sort_by_key(|op| schedule.iter().position(|other| other == op));
                assert_eq!(&all, schedule, "{p:?}, seed {seed}, rank {rank}");
            }
            // The order can run: a pass never waits for one that comes later.
            simulate(
                &p,
                &run.orders,
                &Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 },
            )
            .unwrap();
        }
    }
}

/// Ranks 6 and 7 run what they chose alone: the label of the first all-reduce shows it, on every
/// rank.
#[test]
fn ranks_that_disagree_are_told_which_passes_they_run() {
    let corpus = Corpus::embedded().unwrap();
    let disagreement = with_a_late_message(Choice::Alone, 3.0, &[1]).unwrap_err();
    let error = disagree(&small_layers(&corpus), &corpus.train, &disagreement).unwrap();
    let first = error.lines().next().unwrap_or_default();
    for part in [
        "different calls",
        "\"forward pass\" in group tensor",
        "\"backward pass\" in group tensor",
    ] {
        assert!(first.contains(part), "{part}: {error}");
    }
}

/// Messages really race here: whatever arrives first, tensor ranks run the same passes, and train
/// the same bits.
#[test]
fn an_agreed_choice_trains_the_same_bits() {
    let corpus = Corpus::embedded().unwrap();
    let config = small_layers(&corpus);
    let text = &corpus.train;
    let [fixed, dynamic] =
        [None, Some(Choice::Agreed)].map(|choice| train(&config, text, choice).unwrap());
    assert_eq!(fixed, dynamic);
    let one = unpipelined(&config, text, 3).unwrap();
    for (i, expected) in [&one.losses, &one.grad_norms].into_iter().enumerate() {
        let found: Vec<f64> = dynamic[0].iter().map(|step| step[i]).collect();
        assert!(largest_difference(&found, expected) < 1e-4, "{found:?} {expected:?}");
    }
    launch::run(8, |world| {
        let mut training = Training::new(&config, &strategy(), &world)?;
        let ran = step_dynamic(&mut training, text, 0, Choice::Agreed)?.0.passes;
        let mesh = &training.mesh;
        let number =
            |op: Op| (log_number(&JOB, op) * 2 + usize::from(op.work == Work::Forward)) as u64;
        let mine: Vec<u64> = ran.iter().map(|done| number(done.op)).collect();
        let mut most = mine.clone();
        mesh.group(Axis::Tensor).all_reduce(&mut most, Reduce::Max)?;
        assert_eq!(
            (&mine, mine.len()),
            (&most, 64),
            "the tensor ranks of {:?} run different passes",
            mesh.at
        );
        Ok(())
    })
    .unwrap();
}
