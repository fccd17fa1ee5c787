//! Every collective against its definition, for any number of ranks, length, type and reduction;
//! and what is said when ranks do not do the same.

use crate::suite::collectives::{self, all_types, split, started, started_all_types, started_mean};
use half::bf16;
use proptest::prelude::*;
use shardlab::comm::{CallKind, Comm, CommError, Dtype, RankState, Reduce};
use shardlab::launch;
use std::time::{Duration, Instant};

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]

    #[test]
    fn collectives_do_what_they_are_defined_to(
        ranks in 1usize..6, len in prop_oneof![0usize..9, Just(1031usize), Just(2048)],
        op in prop_oneof![Just(Reduce::Sum), Just(Reduce::Min), Just(Reduce::Max), Just(Reduce::Prod)], root in 0usize..6,
    ) {
        launch::run(ranks, |comm| all_types(&comm, len, op, root % ranks)).unwrap();
    }

    #[test]
    fn collectives_under_way_are_like_blocking_ones(
        ranks in 1usize..6, len in prop_oneof![0usize..9, Just(1031usize)],
        op in prop_oneof![Just(Reduce::Sum), Just(Reduce::Min), Just(Reduce::Max), Just(Reduce::Prod)],
    ) {
        launch::run(ranks, |comm| {
            started_all_types(&comm, len, op)?;
            started_mean(&comm, len)
        }).unwrap();
    }

    #[test]
    fn split_makes_groups(ranks in 1usize..8, colors in 1usize..4, len in 0usize..9) {
        launch::run(ranks, |comm| split(&comm, colors, len)).unwrap();
    }
}

#[test]
fn uneven_parts_must_be_what_others_send() {
    for ranks in [1, 2, 5] {
        launch::run(ranks, |comm| collectives::uneven_counts(&comm)).unwrap();
    }
}

#[test]
fn extremes_of_floats_have_one_result() {
    for ranks in 1..=5 {
        launch::run(ranks, |comm| collectives::extremes_of_floats(&comm)).unwrap();
    }
}

#[test]
fn long_vectors_under_way_are_like_blocking_ones() {
    for ranks in [2, 5] {
        launch::run(ranks, |comm| {
            started::<f32>(&comm, 70_001, Reduce::Sum)?;
            started::<bf16>(&comm, 70_001, Reduce::Max)?;
            started_mean(&comm, 70_001)
        })
        .unwrap();
    }
}

#[test]
fn a_mean_is_the_sum_in_rank_order_divided_once() {
    let parts: Vec<Vec<f32>> = (0..5)
        .map(|r| (0..3001).map(|i| ((r * 31 + i) as f32).sin()).collect())
        .collect();
    let mut expected = parts[0].clone();
    for part in &parts[1..] {
        expected.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
    }
    expected.iter_mut().for_each(|x| *x /= 5.0);
    let means = launch::run(5, |comm| {
        let mut x = parts[comm.rank()].clone();
        comm.all_reduce(&mut x, Reduce::Mean)?;
        Ok(x)
    });
    // Bitwise, on every rank.
    assert!(means.unwrap().iter().all(|mean| mean == &expected));
}

#[test]
fn a_result_does_not_depend_on_buckets() {
    let bring = |rank: usize| {
        (0..1000).map(|i| (rank as f32 + 0.1) * (i as f32).cos()).collect::<Vec<f32>>()
    };
    let whole = launch::run(4, |comm| {
        let mut x = bring(comm.rank());
        comm.all_reduce(&mut x, Reduce::Sum)?;
        Ok(x)
    });
    let buckets = launch::run(4, |comm| {
        let mut x = bring(comm.rank());
        for bucket in x.chunks_mut(77) {
            comm.all_reduce(bucket, Reduce::Sum)?;
        }
        Ok(x)
    });
    assert_eq!(whole.unwrap(), buckets.unwrap());
}

#[test]
fn sums_under_way_are_added_in_rank_order() {
    let bring =
        |rank: usize| (0..100_003).map(|i| ((rank * 31 + i) as f32).sin()).collect::<Vec<f32>>();
    let pairs = launch::run(5, |comm| {
        let mut x = bring(comm.rank());
        let copy = bring(comm.rank());
        let memory = copy.as_ptr() as usize;
        let started = comm.start_all_reduce(copy, Reduce::Sum)?;
        comm.all_reduce(&mut x, Reduce::Sum)?;
        let sum = started.wait()?;
        // The very vector that was handed over: nothing is allocated for the result.
        assert_eq!(sum.as_ptr() as usize, memory);
        Ok((sum, x))
    });
    assert!(pairs.unwrap().iter().all(|(started, blocking)| started == blocking));
}

/// Parts that end in the middle of a block, and sums whose bits depend on their order.
#[test]
fn a_part_under_way_is_the_part_of_the_sum() {
    for len in [1, 17, 1000, 40_001] {
        let bring = |rank: usize| {
            (0..5 * len).map(|i| ((rank * 31 + i) as f32).sin()).collect::<Vec<f32>>()
        };
        launch::run(5, |comm| {
            let mut sum = bring(comm.rank());
            let copy = bring(comm.rank());
            let memory = copy.as_ptr() as usize;
            let started = comm.start_reduce_scatter(copy, Reduce::Sum)?;
            comm.all_reduce(&mut sum, Reduce::Sum)?;
            let part = started.wait()?;
            assert_eq!((part.as_ptr() as usize, part.len()), (memory, len));
            assert_eq!(part, sum[comm.rank() * len..][..len]);
            let mut all = vec![0.0; 5 * len];
            all[comm.rank() * len..][..len].copy_from_slice(&part);
            assert_eq!(comm.start_all_gather(all)?.wait()?, sum);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn groups_have_all_reduces_of_their_own_under_way() {
    let sums = launch::run(4, |comm| {
        let group = comm.split(comm.rank() as u64 % 2, 0)?;
        let all = comm.start_all_reduce(vec![1u64], Reduce::Sum)?;
        let ours = group.start_all_reduce(vec![1u64], Reduce::Sum)?;
        Ok((ours.wait()?[0], all.wait()?[0]))
    });
    assert_eq!(sums.unwrap(), [(2, 4); 4]);
}

#[test]
fn messages_have_tags() {
    (1..=4).for_each(|ranks| drop(launch::run(ranks, |comm| collectives::tagged(&comm)).unwrap()));
    let error = broken(2, |comm| comm.tagged(Comm::MAX_TAG + 1).send(&[1u8], 1));
    assert!(error.to_string().contains("tag 32767, 1 u8, "), "{error}");
    refused(&error, "tags are 0 to 32766");
}

#[test]
fn whoever_waits_in_one_group_goes_on_in_others() {
    (2..=4).for_each(|ranks| {
        drop(launch::run(ranks, |comm| collectives::started_in_two_groups(&comm)).unwrap())
    });
}

#[test]
fn each_group_has_a_meter() {
    (1..=5).for_each(|ranks| {
        drop(launch::run(ranks, |comm| collectives::traffic_by_group(&comm)).unwrap())
    });
}

#[test]
fn ranks_form_meshes() {
    for ranks in [1, 2, 6, 8, 12, 16] {
        launch::run(ranks, |comm| collectives::meshes(&comm)).unwrap();
    }
}

#[test]
fn threads_add_in_rank_order() {
    assert_eq!(launch::run(3, |comm| Ok(comm.adds_in_rank_order())).unwrap(), [true; 3]);
}

#[test]
fn errors_name_groups_and_ranks_of_the_world() {
    let error = broken(4, |comm| {
        let pair = comm.split(comm.rank() as u64 / 2, 0)?.named("tensor");
        if comm.rank() == 2 {
            pair.recv(&mut [0f32], 1)
        } else {
            Ok(())
        }
    });
    let CommError::RankEnded { rank: 3, call, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((call.kind, call.number), (CallKind::Recv, Some(2)));
    assert_eq!(call.group.as_deref(), Some("tensor"));
    assert_eq!(call.file, file!());
    let error = error.to_string();
    assert!(
        error.starts_with(
            "rank 3 ended, and never entered recv in group tensor (from 3 (1 in its group), "
        ),
        "{error}"
    );
    assert!(
        error.contains(
            "\n  rank 2  waits in recv in group tensor (from 3 (1 in its group), 1 f32, "
        ),
        "{error}"
    );
}

#[test]
fn a_message_that_nobody_receives_is_an_error() {
    let error = broken(3, |comm| match comm.rank() {
        0 => comm.send(&[1f32; 3], 2).and_then(|()| comm.tagged(7).send(&[1u8], 1)),
        _ => Ok(()),
    });
    let CommError::NotReceived { messages } = &error else {
        panic!("{error}")
    };
    let lanes: Vec<_> = messages.iter().map(|m| (m.from, m.to, m.count)).collect();
    assert_eq!(lanes, [(0, 1, 1), (0, 2, 1)]);
    let error = error.to_string();
    let says = "the run is over, and messages were not received\n  \
                rank 0  sent a message that rank 1 did not receive; the latest: send (to 1, tag 7, 1 u8, ";
    assert!(error.starts_with(says), "{error}");
    assert!(
        error.contains("\n  rank 0  sent a message that rank 2 did not receive")
            && error.contains("\nhelp: "),
        "{error}"
    );
}

#[test]
fn messages_with_labels_meet_their_like() {
    let labels = |one, other| {
        launch::run(2, |comm| {
            Ok(if comm.rank() == 0 {
                comm.labelled(one).send(&[1u8], 1)
            } else {
                comm.labelled(other).recv(&mut [0u8], 0)
            }?)
        })
    };
    labels("activations", "activations").unwrap();
    let error = labels("activations", "gradients").unwrap_err();
    let Some(CommError::MessageDiffers { from: 0, len: 1, sent: Some(sent), call, .. }) =
        error.downcast_ref()
    else {
        panic!("{error:#}")
    };
    assert_eq!(sent.label.as_deref(), Some("activations"));
    assert_eq!(call.label.as_deref(), Some("gradients"));
    let error = format!("{error:#}");
    assert!(
        error.starts_with("the message does not fit: send \"activations\" (to 1, "),
        "{error}"
    );
}

/// A loop around `probe` ends when no message can come.
#[test]
fn a_probe_finds_nothing_where_the_sender_has_ended() {
    let error = broken(2, |comm| {
        while comm.rank() == 1 && !comm.probe(0)? {
            std::thread::yield_now();
        }
        Ok(())
    });
    assert!(ended(&error, 0, CallKind::Probe), "{error}");
}

#[test]
fn the_meter_counts_what_a_ring_all_reduce_sends() {
    let traffic = launch::run(4, |comm| {
        comm.all_reduce(&mut [0f32; 1000], Reduce::Sum)?;
        Ok(comm.traffic())
    });
    for traffic in traffic.unwrap() {
        assert_eq!((traffic.calls, traffic.bytes), (1, 2 * 3 * 4 * 1000 / 4));
    }
    // And its two halves, each for itself.
    let traffic = launch::run(4, |comm| {
        drop(comm.start_reduce_scatter(vec![0f32; 1000], Reduce::Sum)?.wait()?);
        drop(comm.start_all_gather(vec![0f32; 1000])?.wait()?);
        Ok(comm.traffic())
    });
    for traffic in traffic.unwrap() {
        assert_eq!((traffic.calls, traffic.bytes), (2, 2 * 3 * 4 * 1000 / 4));
    }
}

/// What goes wrong, as the run's error.
fn broken(ranks: usize, body: impl Fn(&Comm) -> shardlab::comm::Result<()> + Sync) -> CommError {
    let error = launch::run(ranks, |comm| Ok(body(&comm)?)).unwrap_err();
    error.downcast().expect("an error of communication")
}

/// Whether `rank` has ended, and a call of this kind needs it.
fn ended(error: &CommError, rank: usize, kind: CallKind) -> bool {
    matches!(error, CommError::RankEnded { rank: gone, call, .. } if *gone == rank && call.kind == kind)
}

/// The kinds of two calls that differ, in order.
fn kinds(error: &CommError) -> [CallKind; 2] {
    let CommError::CallsDiffer { calls, .. } = error else {
        panic!("{error}")
    };
    let mut kinds = [calls[0].kind, calls[1].kind];
    kinds.sort_by_key(|kind| kind.name());
    kinds
}

fn refused(error: &CommError, says: &str) {
    let is_it = matches!(error, CommError::Invalid { call: Some(_), why } if why.contains(says));
    assert!(is_it, "{error}");
}

#[test]
fn a_deadlock_is_an_error_that_names_every_rank() {
    let error = broken(2, |comm| comm.recv(&mut [0u8; 4], 1 - comm.rank()));
    assert!(matches!(error, CommError::Deadlock { all: true, .. }), "{error}");
    let error = error.to_string();
    assert!(
        error.contains("rank 0  waits in recv (from 1, 4 u8, tests/library/collectives.rs:"),
        "{error}"
    );
    assert!(
        error.contains("rank 1  waits in recv (from 0, 4 u8, tests/library/collectives.rs:"),
        "{error}"
    );
}

#[test]
fn different_calls_are_an_error_on_every_rank() {
    let errors = std::sync::Mutex::new(Vec::new());
    let error = broken(3, |comm| {
        let result = if comm.rank() == 1 {
            comm.barrier()
        } else {
            comm.all_reduce(&mut [1i64], Reduce::Sum)
        };
        errors.lock().unwrap().extend(result.clone().err());
        result
    });
    assert_eq!(kinds(&error), [CallKind::AllReduce, CallKind::Barrier]);
    // The rank that came last has found it. The others have stopped, for the same reason.
    let errors = errors.into_inner().unwrap();
    assert_eq!(errors.len(), 3);
    assert_eq!(errors.iter().filter(|e| **e == error).count(), 1);
    assert!(errors.iter().all(|e| *e.reason() == error));
    let CommError::CallsDiffer { report, .. } = &error else {
        unreachable!()
    };
    // Rank 1 waits there, or it came last and is still in the call that found the difference.
    let stands_in = |(rank, state): &(usize, RankState)| match state {
        RankState::Waits { call, .. } | RankState::InCall { call } => {
            Some((*rank, call.kind, call.number))
        }
        _ => None,
    };
    assert!(
        report
            .ranks
            .iter()
            .filter_map(stands_in)
            .any(|one| one == (1, CallKind::Barrier, Some(1))),
        "{error}"
    );
}

#[test]
fn a_message_of_another_length_is_an_error() {
    let error = broken(2, |comm| match comm.rank() {
        0 => comm.send(&[1f32; 3], 1),
        _ => comm.recv(&mut [0f32; 4], 0),
    });
    assert!(
        matches!(&error, CommError::MessageDiffers { from: 0, len: 3, call, .. } if call.len == 4),
        "{error}"
    );
}

#[test]
fn reductions_roots_and_types_must_agree_too() {
    let reductions =
        broken(2, |comm| comm.all_reduce(&mut [1f32], [Reduce::Sum, Reduce::Max][comm.rank()]));
    assert_eq!(kinds(&reductions), [CallKind::AllReduce; 2]);
    let reductions = reductions.to_string();
    assert!(
        reductions.contains("all_reduce (sum, ") && reductions.contains("all_reduce (max, "),
        "{reductions}"
    );
    let roots = broken(2, |comm| comm.broadcast(&mut [1f32], comm.rank()));
    assert_eq!(kinds(&roots), [CallKind::Broadcast; 2]);
    let roots = roots.to_string();
    assert!(roots.contains("root 0") && roots.contains("root 1"), "{roots}");
    let types = broken(2, |comm| match comm.rank() {
        0 => comm.send(&[1f32], 1),
        _ => comm.recv(&mut [0i32], 0),
    });
    let CommError::MessageDiffers { sent: Some(sent), call, .. } = types else {
        panic!("{types}")
    };
    assert_eq!((sent.dtype, call.dtype), (Dtype::F32, Dtype::I32));
}

#[test]
fn an_all_reduce_under_way_fails_as_a_blocking_one_does() {
    let start = |comm: &Comm, len| comm.start_all_reduce(vec![1f32; len], Reduce::Sum);
    let lengths = broken(2, |comm| start(comm, 1 + comm.rank())?.wait().map(drop));
    assert_eq!(kinds(&lengths), [CallKind::StartAllReduce; 2]);
    let blocking = broken(2, |comm| match comm.rank() {
        0 => start(comm, 1)?.wait().map(drop),
        _ => comm.all_reduce(&mut [1f32], Reduce::Sum),
    });
    assert_eq!(kinds(&blocking), [CallKind::AllReduce, CallKind::StartAllReduce]);
    let starts = broken(2, |comm| match comm.rank() {
        0 => comm.start_all_gather(vec![1f32; 2])?.wait().map(drop),
        _ => comm.start_reduce_scatter(vec![1f32; 2], Reduce::Sum)?.wait().map(drop),
    });
    assert_eq!(kinds(&starts), [CallKind::StartAllGather, CallKind::StartReduceScatter]);
    let gone = broken(2, |comm| {
        if comm.rank() == 0 {
            start(comm, 1)?.wait().map(drop)
        } else {
            Ok(())
        }
    });
    assert!(ended(&gone, 1, CallKind::StartAllReduce), "{gone}");
    // One who only asks now and then hears of it too.
    let gone = broken(2, |comm| {
        let mut started = if comm.rank() == 0 {
            start(comm, 1)?
        } else {
            return Ok(());
        };
        let start = Instant::now();
        while !started.test()? {
            // Only a hang reaches this bound.
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        Ok(())
    });
    assert!(ended(&gone, 1, CallKind::StartAllReduce), "{gone}");
    let deadlock = broken(2, |comm| match comm.rank() {
        0 => start(comm, 1)?.wait().map(drop),
        _ => comm.recv(&mut [0u8], 0),
    });
    assert!(matches!(deadlock, CommError::Deadlock { .. }), "{deadlock}");
    let deadlock = deadlock.to_string();
    assert!(
        deadlock.contains("rank 0  waits in start_all_reduce (sum, 1 f32, "),
        "{deadlock}"
    );
}

#[test]
fn an_all_to_all_under_way_fails_as_a_blocking_one_does() {
    let start =
        |comm: &Comm| comm.start_all_to_all_v(vec![comm.rank() as u64; 3], &[1; 3], &[1; 3]);
    let gone = broken(3, |comm| {
        let first = start(comm)?;
        // What rank 1 has sent arrives, though it ends without a wait.
        if comm.rank() == 1 {
            return Ok(());
        }
        assert_eq!(first.wait()?, [0, 1, 2]);
        start(comm)?.wait().map(drop)
    });
    // Ranks compare their counts before they start.
    assert!(ended(&gone, 1, CallKind::AllGather), "{gone}");
    let blocking = broken(2, |comm| {
        let comm = comm.labelled("dispatch");
        match comm.rank() {
            0 => comm.start_all_to_all_v(vec![0u8; 2], &[1; 2], &[1; 2])?.wait().map(drop),
            _ => comm.all_to_all_v(&[0u8; 2], &[1; 2], &mut [0; 2], &[1; 2]),
        }
    });
    assert_eq!(kinds(&blocking), [CallKind::AllToAllV, CallKind::StartAllToAllV]);
}

#[test]
fn a_rank_that_fails_with_an_all_reduce_under_way_stops_the_others() {
    let stopped = std::sync::Mutex::new(Vec::new());
    let error = launch::run(3, |comm| {
        let started = comm.start_all_reduce(vec![1f32; 1000], Reduce::Sum)?;
        let other = if comm.rank() == 1 {
            panic!("out of memory")
        } else {
            comm.start_all_reduce(vec![0u8], Reduce::Sum)?
        };
        let both = started.wait().and_then(|_| other.wait());
        stopped.lock().unwrap().extend(both.clone().err());
        both?;
        Ok(())
    });
    let error = format!("{:#}", error.unwrap_err());
    assert!(error.starts_with("rank 1 failed: panicked: out of memory"), "{error}");
    let stopped = stopped.into_inner().unwrap();
    for error in &stopped {
        let panicked = CommError::RankFailed {
            rank: 1,
            panicked: true,
            why: "panicked: out of memory".into(),
            cause: None,
        };
        assert!(matches!(error, CommError::Stopped { .. }), "{error}");
        assert_eq!(*error.reason(), panicked);
    }
}

#[test]
fn senseless_arguments_are_refused_before_anyone_waits() {
    let no_rank = broken(2, |comm| comm.broadcast(&mut [0f32], 2));
    refused(&no_rank, "there is no rank 2 in a group of 2");
    let no_mean = broken(2, |comm| comm.all_reduce(&mut [0i32], Reduce::Mean));
    refused(&no_mean, "integers have no mean");
    let no_mean = broken(2, |comm| comm.reduce_scatter(&[0i32; 2], &mut [0i32], Reduce::Mean));
    refused(&no_mean, "integers have no mean");
    let no_fit = broken(2, |comm| comm.all_gather(&[0u8; 2], &mut [0u8; 5]));
    refused(&no_fit, "must hold 2 ranks x 2 elements, but holds 5");
    let no_fit = broken(2, |comm| comm.start_all_gather(vec![0u8; 5]).map(drop));
    assert!(no_fit.to_string().starts_with("start_all_gather (2 u8, "), "{no_fit}");
    refused(&no_fit, "must hold 2 ranks x 2 elements, but holds 5");
    let no_mean =
        broken(2, |comm| comm.start_reduce_scatter(vec![0i32; 2], Reduce::Mean).map(drop));
    refused(&no_mean, "integers have no mean");
}

/// A group of all ranks is another one than the world: each has messages of its own.
#[test]
fn a_message_of_the_world_is_no_message_of_a_group() {
    launch::run(2, |world| {
        let group = world.split(0, world.rank() as i64)?;
        if world.rank() == 0 {
            world.send(&[1u64], 1)?;
            group.send(&[2u64], 1)?;
            return Ok(());
        }
        let (mut of_group, mut of_world) = ([0u64], [0u64]);
        group.recv(&mut of_group, 0)?;
        world.recv(&mut of_world, 0)?;
        assert_eq!((of_world, of_group), ([1], [2]));
        Ok(())
    })
    .unwrap();
}
