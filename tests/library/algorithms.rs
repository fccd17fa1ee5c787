//! Collectives made of sends and receives: values, bits, and what they cost.

use crate::suite::algorithms::{all_types, as_defined, costs, exercise, pairs, same_bits};
use crate::suite::by_algorithm;
use proptest::prelude::*;
use shardlab::comm::algorithms::{self, Algorithm, Collective, Round, Task};
use shardlab::comm::{CommError, Reduce};
use shardlab::launch;
use std::collections::HashMap;

const OPS: [Reduce; 5] = [Reduce::Sum, Reduce::Min, Reduce::Max, Reduce::Prod, Reduce::Mean];

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    #[test]
    fn collectives_are_what_they_are_defined_to_be(
        ranks in 1usize..10, len in prop_oneof![0usize..10, Just(101usize), Just(1031)],
        op in prop::sample::select(&OPS[..]), root in 0usize..9,
    ) {
        launch::run(ranks, |comm| all_types(&comm, len, op, root % ranks)).unwrap();
    }

    #[test]
    fn costs_are_the_formulas(ranks in 1usize..10, len in prop_oneof![0usize..20, Just(1008usize)], root in 0usize..9) {
        launch::run(ranks, |comm| costs(&comm, len, root % ranks)).unwrap();
    }
}

#[test]
fn every_number_of_ranks_every_operation_and_few_elements() {
    for ranks in 1..=9 {
        launch::run(ranks, |comm| {
            for op in OPS {
                for len in [0, 1, ranks - 1, ranks + 1] {
                    all_types(&comm, len, op, (len + 1) % ranks)?;
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn long_vectors_go_in_segments() {
    let len = 3 * algorithms::SEGMENT + 5;
    for (ranks, root) in [(2, 0), (3, 1), (5, 2)] {
        launch::run(ranks, |comm| {
            for (collective, algorithm) in pairs() {
                as_defined::<f32>(&comm, collective, algorithm, len, Reduce::Sum, root)?;
            }
            costs(&comm, len, root)
        })
        .unwrap();
    }
}

#[test]
fn all_ranks_end_with_the_same_bits_in_every_run() {
    for ranks in 1..=9 {
        let len = 1031;
        launch::run(ranks, |comm| same_bits(&comm, len)).unwrap();
    }
}

#[test]
fn the_exercises_ring_adds_up() {
    (1..=9).for_each(|ranks| drop(launch::run(ranks, |comm| exercise(&comm)).unwrap()));
}

#[test]
fn two_zeros_and_nan_are_the_same_on_all_ranks_too() {
    for op in [Reduce::Min, Reduce::Max] {
        for &algorithm in Collective::AllReduce.algorithms() {
            let bits = launch::run(7, |comm| {
                let zero = if comm.rank() % 3 == 1 { -0.0 } else { 0f32 };
                let mut x = [zero, if comm.rank() == 4 { f32::NAN } else { 1.0 }];
                algorithms::all_reduce(&comm, &mut x, op, algorithm)?;
                assert!(x[1].is_nan());
                Ok(x.map(f32::to_bits))
            });
            let bits = bits.unwrap();
            assert!(bits.iter().all(|x| x == &bits[0]), "{algorithm:?} {op:?}: {bits:?}");
        }
    }
}

#[test]
fn the_naive_all_reduce_adds_in_rank_order_as_the_default_does() {
    launch::run(5, |comm| {
        let bring = |i: usize| (comm.rank() as f32 + 0.1) * (i as f32).cos();
        let mut x: Vec<f32> = (0..1000).map(bring).collect();
        let mut y = x.clone();
        comm.all_reduce(&mut x, Reduce::Sum)?;
        algorithms::all_reduce(&comm, &mut y, Reduce::Sum, Algorithm::Naive)?;
        assert_eq!(x, y);
        Ok(())
    })
    .unwrap();
}

/// All ranks' rounds by number.
fn by_number(task: &Task) -> Vec<HashMap<usize, Round>> {
    let mut rounds = vec![HashMap::new(); task.total_rounds()];
    for rank in 0..task.ranks {
        for round in task.rounds(rank) {
            let number = round.number;
            assert!(
                round.send.is_some() || round.recv.is_some(),
                "{task:?}: rank {rank} does nothing in round {number}"
            );
            assert!(
                rounds[number].insert(rank, round).is_none(),
                "{task:?}: rank {rank} has round {number} twice"
            );
        }
    }
    rounds
}

#[test]
fn each_message_is_sent_and_received_once_in_the_same_round() {
    for (collective, algorithm) in pairs() {
        for ranks in (1..=17).chain([31, 32, 33]) {
            for len in [0, 1, 5, ranks, 3 * ranks + 1, 70_000] {
                let task = Task::new(collective, algorithm, ranks, len, 4, ranks / 3).unwrap();
                for (number, rounds) in by_number(&task).iter().enumerate() {
                    let name = format!("{task:?}, round {number}");
                    assert!(!rounds.is_empty(), "{name}: nobody does anything");
                    let mut sent = 0;
                    for (&rank, round) in rounds {
                        let Some(send) = &round.send else { continue };
                        assert!(send.to != rank && send.range.end <= task.buffer(), "{name}");
                        let recv = rounds.get(&send.to).and_then(|there| there.recv.as_ref());
                        let recv = recv.unwrap_or_else(|| panic!("{name}: nobody receives"));
                        assert_eq!(
                            (recv.from, recv.range.len()),
                            (rank, send.range.len()),
                            "{name}"
                        );
                        // The same elements on both sides; an all-to-all receives in the buffer's
                        // second half.
                        assert!(
                            recv.range == send.range || collective == Collective::AllToAll,
                            "{name}"
                        );
                        sent += 1;
                    }
                    assert_eq!(
                        rounds.values().filter(|round| round.recv.is_some()).count(),
                        sent,
                        "{name}"
                    );
                }
            }
        }
    }
}

#[test]
fn auto_chooses_by_size_and_ranks() {
    let auto = |collective: Collective, ranks, bytes: usize| {
        let len = bytes / 4;
        Task::new(collective, Algorithm::Auto, ranks, len, 4, 0).unwrap().algorithm
    };
    for (ranks, bytes, expected) in [
        (6, 1 << 10, Algorithm::RecursiveDoubling),
        (8, 1 << 20, Algorithm::Rabenseifner),
        (6, 1 << 20, Algorithm::Ring),
        (768, 1 << 20, Algorithm::Rabenseifner),
        (768, 1 << 22, Algorithm::Ring),
    ] {
        assert_eq!(
            auto(Collective::AllReduce, ranks, bytes),
            expected,
            "{ranks} ranks, {bytes} bytes"
        );
    }
    assert_eq!(auto(Collective::Broadcast, 6, 1 << 10), Algorithm::Tree);
    assert_eq!(auto(Collective::Broadcast, 6, 1 << 20), Algorithm::Chain);
    // Here `bytes` is one rank's part.
    assert_eq!(auto(Collective::AllGather, 6, 1 << 10), Algorithm::RecursiveDoubling);
    assert_eq!(auto(Collective::AllGather, 6, 1 << 20), Algorithm::Ring);
    assert_eq!(auto(Collective::AllGather, 8, 1 << 20), Algorithm::RecursiveDoubling);
    assert_eq!(auto(Collective::Gather, 8, 1 << 10), Algorithm::Tree);
    assert_eq!(auto(Collective::Gather, 8, 1 << 20), Algorithm::Flat);
}

#[test]
fn senseless_tasks_are_refused() {
    let error = |collective, algorithm, root| match Task::new(collective, algorithm, 3, 1, 4, root)
        .unwrap_err()
    {
        CommError::Invalid { call: None, why } => why,
        other => panic!("{other}"),
    };
    let unknown = error(Collective::AllReduce, Algorithm::Pairwise, 0);
    assert_eq!(
        unknown,
        "all-reduce has no algorithm pairwise; it has auto, naive, ring, recursive-doubling, rabenseifner"
    );
    assert_eq!(
        error(Collective::Broadcast, Algorithm::Tree, 3),
        "there is no root 3 in a group of 3"
    );
    let result = launch::run(2, |comm| {
        Ok(algorithms::all_reduce(&comm, &mut [1i32], Reduce::Mean, Algorithm::Ring)?)
    });
    assert!(format!("{:#}", result.unwrap_err()).contains("integers have no mean"));
    let result = launch::run(2, |comm| {
        let way = (Collective::AllGather, Algorithm::Ring);
        Ok(by_algorithm::run(&comm, way, (&[1i32], &mut [0; 3]), Reduce::Sum, 0)?)
    });
    assert!(
        format!("{:#}", result.unwrap_err())
            .contains("must hold 2 ranks x 1 elements, but holds 3")
    );
}
