//! Every collective against its definition.

use half::{bf16, f16};
use shardlab::comm::{Comm, Element, Reduce};
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use std::fmt::Debug;
use std::time::Duration;

/// A test's values: small integers, exact in every type, so that sums and products are exact too.
pub trait Number: Element + PartialEq + Debug {
    fn from_small(x: u64) -> Self;
}
macro_rules! number { ($($t:ty => $f:expr),*) => { $(impl Number for $t { fn from_small(x: u64) -> $t { $f(x) } })* } }
number!(u8 => |x| x as u8, i32 => |x| x as i32, i64 => |x| x as i64, u64 => |x| x, f32 => |x| x as f32,
        f64 => |x| x as f64, f16 => |x| f16::from_f32(x as f32), bf16 => |x| bf16::from_f32(x as f32));

fn value(rank: usize, i: usize) -> u64 {
    ((rank * 7 + i * 3 + rank * i) % 3 + 1) as u64
}

/// The `len` values of `rank`.
fn bring<T: Number>(rank: usize, len: usize) -> Vec<T> {
    (0..len).map(|i| T::from_small(value(rank, i))).collect()
}

/// The reduction of all ranks' element `i`, by definition.
fn reduced<T: Number>(op: Reduce, ranks: usize, i: usize) -> T {
    let values = (0..ranks).map(|r| value(r, i));
    T::from_small(match op {
        Reduce::Sum => values.sum(),
        Reduce::Min => values.min().unwrap(),
        Reduce::Max => values.max().unwrap(),
        Reduce::Prod => values.product(),
        Reduce::Mean => unreachable!("means are tested apart: they are not whole numbers"),
    })
}

/// Runs all collectives once, and compares each with its definition.
fn all_collectives<T: Number>(
    comm: &Comm,
    len: usize,
    op: Reduce,
    root: usize,
) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let mine: Vec<T> = bring(rank, len);
    let zero = || vec![T::zeroed(); len];
    let by_definition: Vec<T> = (0..len).map(|i| reduced(op, n, i)).collect();

    let mut x = mine.clone();
    comm.all_reduce(&mut x, op)?;
    assert_eq!(x, by_definition, "all_reduce");

    let mut x = mine.clone();
    comm.reduce(&mut x, op, root)?;
    assert_eq!(
        x,
        if rank == root {
            by_definition.clone()
        } else {
            mine.clone()
        },
        "reduce"
    );

    let mut x = mine.clone();
    comm.broadcast(&mut x, root)?;
    assert_eq!(x, bring::<T>(root, len), "broadcast");

    let everyone: Vec<T> = (0..n).flat_map(|r| bring(r, len)).collect();
    let mut x = vec![T::zeroed(); n * len];
    comm.all_gather(&mine, &mut x)?;
    assert_eq!(x, everyone, "all_gather");

    let mut x = vec![T::zeroed(); if rank == root { n * len } else { 0 }];
    comm.gather(&mine, &mut x, root)?;
    assert_eq!(x, if rank == root { everyone } else { Vec::new() }, "gather");

    let long: Vec<T> = bring(rank, n * len);
    let mut x = zero();
    comm.reduce_scatter(&long, &mut x, op)?;
    assert_eq!(
        x,
        (0..len).map(|i| reduced(op, n, rank * len + i)).collect::<Vec<T>>(),
        "reduce_scatter"
    );

    let mut x = zero();
    comm.scatter(if rank == root { &long } else { &[] }, &mut x, root)?;
    assert_eq!(x, bring::<T>(root, n * len)[rank * len..][..len], "scatter");

    let mut even = vec![T::zeroed(); n * len];
    comm.all_to_all(&long, &mut even)?;
    let parts = (0..n).flat_map(|r| bring::<T>(r, n * len)[rank * len..][..len].to_vec());
    assert_eq!(even, parts.collect::<Vec<T>>(), "all_to_all");

    // Rank r sends (r + q) % 3 times `len` elements to rank q: nothing to some.
    let count = |from: usize, to: usize| (from + to) % 3 * len;
    let sends: Vec<usize> = (0..n).map(|to| count(rank, to)).collect();
    let expects: Vec<usize> = (0..n).map(|from| count(from, rank)).collect();
    let sent = |from: usize| -> Vec<T> { bring(from, (0..n).map(|to| count(from, to)).sum()) };
    let mut x = vec![T::zeroed(); expects.iter().sum()];
    let before = comm.traffic().bytes;
    comm.all_to_all_v(&sent(rank), &sends, &mut x, &expects)?;
    let parts = (0..n).flat_map(|from| {
        let start = (0..rank).map(|to| count(from, to)).sum::<usize>();
        sent(from)[start..][..count(from, rank)].to_vec()
    });
    let parts: Vec<T> = parts.collect();
    assert_eq!(x, parts, "all_to_all_v");
    let leaving: usize = (0..n).filter(|&to| to != rank).map(|to| count(rank, to)).sum();
    let counts = 2 * n * (n - 1) * 8;
    let bytes = (leaving * size_of::<T>() + counts) as u64;
    assert_eq!(comm.traffic().bytes - before, bytes, "bytes of all_to_all_v");
    // Two under way and one dropped. Ranks ask in different orders.
    let equal = vec![len; n];
    let mut first = comm.start_all_to_all_v(sent(rank), &sends, &expects)?;
    let second = comm.start_all_to_all_v(long, &equal, &equal)?;
    drop(comm.start_all_to_all_v(sent(rank), &sends, &expects)?);
    comm.barrier()?;
    if rank.is_multiple_of(2) {
        first.test()?;
        first.complete()?;
    }
    assert_eq!(second.wait()?, even, "start_all_to_all_v of equal parts");
    assert_eq!(first.wait()?, parts, "start_all_to_all_v");
    let before = comm.traffic().bytes;
    comm.start_all_to_all_v(sent(rank), &sends, &expects)?.wait()?;
    assert_eq!(comm.traffic().bytes - before, bytes, "bytes of start_all_to_all_v");

    comm.barrier()?;
    comm.send(&mine, (rank + 1) % n)?;
    let mut x = zero();
    comm.recv(&mut x, (rank + n - 1) % n)?;
    assert_eq!(x, bring::<T>((rank + n - 1) % n, len), "send and recv around the ring");
    Ok(())
}

/// Several collectives in flight at a time, between other calls, some of them dropped. Each has the
/// result of the blocking call.
pub fn started<T: Number>(comm: &Comm, len: usize, op: Reduce) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let by_definition = |len| (0..len).map(|i| reduced(op, n, i)).collect::<Vec<T>>();
    let mut first = comm.start_all_reduce(bring::<T>(rank, len), op)?;
    let second = comm.start_all_reduce(bring::<T>(rank, len + 1), op)?;
    drop(comm.start_all_reduce(bring::<T>(rank, len), op)?);
    let mut x = bring::<T>(rank, len);
    comm.all_reduce(&mut x, op)?;
    assert_eq!(x, by_definition(len), "all_reduce with others under way");
    let third = comm.start_all_reduce(x, Reduce::Max)?;
    let long = bring::<T>(rank, n * len);
    let mut scattered = comm.start_reduce_scatter(long, op)?;
    let mut gathered = bring::<T>(rank + 1, n * len);
    gathered[rank * len..][..len].copy_from_slice(&bring::<T>(rank, len));
    let gathered = comm.start_all_gather(gathered)?;
    let root = len % n;
    let at_root = comm.start_reduce(bring::<T>(rank, len), op, root)?;
    drop(comm.start_all_gather(vec![T::zeroed(); n])?);
    comm.barrier()?;
    let at_root = at_root.wait()?;
    assert_eq!(
        at_root,
        if rank == root {
            by_definition(len)
        } else {
            bring(rank, len)
        },
        "start_reduce"
    );
    if rank.is_multiple_of(2) {
        scattered.test()?;
    }
    assert_eq!(
        gathered.wait()?,
        (0..n).flat_map(|r| bring(r, len)).collect::<Vec<T>>(),
        "start_all_gather"
    );
    let mine: Vec<T> = (0..len).map(|i| reduced(op, n, rank * len + i)).collect();
    assert_eq!(scattered.wait()?, mine, "start_reduce_scatter");
    // Ranks ask in different orders.
    let (second, third) = if rank.is_multiple_of(2) {
        let second = second.wait()?;
        (second, third.wait()?)
    } else {
        let third = third.wait()?;
        (second.wait()?, third)
    };
    while !first.test()? {
        std::thread::yield_now();
    }
    let flight = first.complete()?;
    assert!(flight.start <= flight.end);
    assert_eq!(first.wait()?, by_definition(len), "start_all_reduce");
    assert_eq!(second, by_definition(len + 1), "another under way");
    assert_eq!(third, by_definition(len), "the same everywhere, so their maximum is each");
    Ok(())
}

/// A non-blocking mean has the same bits as the blocking one.
pub fn started_mean(comm: &Comm, len: usize) -> anyhow::Result<()> {
    let mut x: Vec<f32> = bring(comm.rank(), len);
    let mean = comm.start_all_reduce(x.clone(), Reduce::Mean)?.wait()?;
    comm.all_reduce(&mut x, Reduce::Mean)?;
    assert_eq!(mean, x);
    let mut x: Vec<bf16> = bring(comm.rank(), len);
    let mean = comm.start_all_reduce(x.clone(), Reduce::Mean)?.wait()?;
    comm.all_reduce(&mut x, Reduce::Mean)?;
    assert_eq!(mean, x);
    let mut x: Vec<bf16> = bring(comm.rank(), len);
    let mean = comm.start_reduce(x.clone(), Reduce::Mean, 0)?.wait()?;
    comm.reduce(&mut x, Reduce::Mean, 0)?;
    assert_eq!(mean, x);
    let long: Vec<bf16> = bring(comm.rank(), comm.size() * len);
    let mut part = vec![bf16::ZERO; len];
    comm.reduce_scatter(&long, &mut part, Reduce::Mean)?;
    assert_eq!(comm.start_reduce_scatter(long, Reduce::Mean)?.wait()?, part);
    Ok(())
}

/// Minimum and maximum of floats have the same bits on all ranks, on any transport: a NaN wins, and
/// of two zeros the sign decides, not the order of ranks.
pub fn extremes_of_floats(comm: &Comm) -> anyhow::Result<()> {
    let (rank, n) = (comm.rank(), comm.size());
    // A NaN on one rank, each in turn; then zeros of both signs.
    let mut mine: Vec<f64> =
        (0..n).map(|at| if at == rank { f64::NAN } else { at as f64 }).collect();
    mine.extend([if rank % 2 == 0 { 0.0 } else { -0.0 }, if rank % 2 == 0 { -0.0 } else { 0.0 }]);
    for (op, zero) in [(Reduce::Min, -0.0f64), (Reduce::Max, 0.0)] {
        let zero = |own: f64| if n == 1 { own.to_bits() } else { zero.to_bits() };
        let expected = [zero(mine[n]), zero(mine[n + 1])];
        let of_f32 = |x: &f32| f64::from(*x);
        let narrow: Vec<f32> = mine.iter().map(|&x| x as f32).collect();
        let (mut blocking, mut narrowed) = (mine.clone(), narrow.clone());
        comm.all_reduce(&mut blocking, op)?;
        comm.all_reduce(&mut narrowed, op)?;
        let started = comm.start_all_reduce(mine.clone(), op)?.wait()?;
        let narrow = comm.start_all_reduce(narrow, op)?.wait()?;
        let narrow: Vec<f64> = narrow.iter().map(of_f32).collect();
        let narrowed: Vec<f64> = narrowed.iter().map(of_f32).collect();
        for (found, call) in [
            (blocking, "f64"),
            (started, "started f64"),
            (narrowed, "f32"),
            (narrow, "started f32"),
        ] {
            assert!(found[..n].iter().all(|x| x.is_nan()), "{op:?} {call}: {found:?}");
            let zeros: Vec<u64> = found[n..].iter().map(|zero| zero.to_bits()).collect();
            assert_eq!(zeros, expected, "{op:?} {call}");
        }
    }
    Ok(())
}

/// [`started`] in all eight types.
pub fn started_all_types(comm: &Comm, len: usize, op: Reduce) -> anyhow::Result<()> {
    started::<u8>(comm, len, op)?;
    started::<i32>(comm, len, op)?;
    started::<i64>(comm, len, op)?;
    started::<u64>(comm, len, op)?;
    started::<f16>(comm, len, op)?;
    started::<bf16>(comm, len, op)?;
    started::<f32>(comm, len, op)?;
    started::<f64>(comm, len, op)
}

/// [`all_collectives`] in all eight types.
pub fn all_types(comm: &Comm, len: usize, op: Reduce, root: usize) -> anyhow::Result<()> {
    all_collectives::<u8>(comm, len, op, root)?;
    all_collectives::<i32>(comm, len, op, root)?;
    all_collectives::<i64>(comm, len, op, root)?;
    all_collectives::<u64>(comm, len, op, root)?;
    all_collectives::<f16>(comm, len, op, root)?;
    all_collectives::<bf16>(comm, len, op, root)?;
    all_collectives::<f32>(comm, len, op, root)?;
    all_collectives::<f64>(comm, len, op, root)
}

/// Messages in both directions between neighbours, all of one shape, sent in one order and received
/// in a different one. Tags distinguish them, and messages with the same tag keep their order.
pub fn tagged(comm: &Comm) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let left = (rank + n - 1) % n;
    let right = (rank + 1) % n;
    let forward = comm.tagged(7);
    let backward = comm.tagged(Comm::MAX_TAG);
    for number in 0..2 {
        forward.send(&[rank, 1, number].map(|x| x as u64), right)?;
        backward.labelled("gradient").send(&[rank, 2, number].map(|x| x as u64), left)?;
        comm.send(&[rank, 3, number].map(|x| x as u64), right)?;
    }
    for (comm, from, kind) in [(&backward, right, 2), (comm, left, 3), (&forward, left, 1)] {
        for number in 0..2 {
            while !comm.probe(from)? {
                std::thread::yield_now();
            }
            let mut x = [9u64; 3];
            comm.recv(&mut x, from)?;
            assert_eq!(x, [from, kind, number].map(|x| x as u64));
        }
        assert!(!comm.probe(from)?, "all have been received");
    }
    comm.barrier()?;
    Ok(())
}

/// A rank waits for a collective of one group, while a different rank waits for one of a different
/// group. Each must make progress with both.
pub fn started_in_two_groups(comm: &Comm) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let group = comm.split(u64::from(rank > 0), rank as i64)?;
    for round in 0..20 {
        if rank == 0 {
            // The other ranks have both in flight, and wait for one of them.
            std::thread::sleep(Duration::from_micros(300 * round));
        }
        let all = comm.start_all_reduce(vec![1u64; 5000], Reduce::Sum)?;
        let ours = group.start_all_reduce(vec![1u64; 5000], Reduce::Sum)?;
        let (all, ours) = if rank.is_multiple_of(2) {
            let all = all.wait()?;
            (all, ours.wait()?)
        } else {
            let ours = ours.wait()?;
            (all.wait()?, ours)
        };
        assert_eq!((all[0], ours[0]), (n as u64, group.size() as u64));
    }
    Ok(())
}

/// Each group counts its own traffic, and each rank the sum of all its groups.
pub fn traffic_by_group(comm: &Comm) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let group = comm.split((rank % 2) as u64, 0)?;
    let world = comm.traffic();
    let total = comm.total_traffic();
    group.all_gather(&[rank as u64], &mut vec![0; group.size()])?;
    let of_group = 8 * (group.size() as u64 - 1);
    assert_eq!((group.traffic().bytes, comm.traffic().bytes), (of_group, world.bytes));
    comm.all_gather(&[rank as u64], &mut vec![0; n])?;
    let of_world = 8 * (n as u64 - 1);
    assert_eq!((group.traffic().bytes, (comm.traffic() - world).bytes), (of_group, of_world));
    drop(group);
    // Traffic of a group that no longer exists still counts.
    let more = comm.split(0, 0)?;
    // A split sends a color and a key.
    let of_split = 16 * (n as u64 - 1);
    assert_eq!((comm.total_traffic() - total).bytes, of_group + of_world + of_split);
    assert_eq!(more.total_traffic(), comm.total_traffic());
    Ok(())
}

/// In every layout of the ranks, the groups along each axis have the members of the layout.
pub fn meshes(comm: &Comm) -> anyhow::Result<()> {
    let n = comm.size();
    for tensor in (1..=n).filter(|tensor| n.is_multiple_of(*tensor)) {
        for pipeline in (1..=n / tensor).filter(|pipeline| (n / tensor).is_multiple_of(*pipeline)) {
            for order in [Order::PipelineSlowest, Order::DataSlowest] {
                let sizes = Coordinates { data: n / tensor / pipeline, pipeline, tensor };
                let mesh = Mesh::new(comm, Layout { sizes, order })?;
                for axis in Axis::ALL {
                    let group = mesh.group(axis);
                    let expected = mesh.layout.group(comm.rank(), axis);
                    assert_eq!(
                        (group.members(), group.rank()),
                        (&expected[..], mesh.at.along(axis))
                    );
                    let mut sum = [1u64];
                    group.all_reduce(&mut sum, Reduce::Sum)?;
                    assert_eq!(sum, [sizes.along(axis) as u64]);
                }
            }
        }
    }
    Ok(())
}

/// A rank that expects what nobody sends is an error on every rank, before anything is sent; counts
/// that do not fit the slices are one on the rank that has them.
pub fn uneven_counts(comm: &Comm) -> anyhow::Result<()> {
    let n = comm.size();
    let last = comm.rank() == n - 1;
    let sends = vec![2; n];
    // The last rank expects a number more from rank 0.
    let mut expects = sends.clone();
    expects[0] += usize::from(last);
    let mut received = vec![0u64; expects.iter().sum()];
    let says = format!("rank 0 of the group sends 2 elements to rank {}, which expects 3", n - 1);
    let error = comm.all_to_all_v(&vec![7u64; 2 * n], &sends, &mut received, &expects);
    let started = comm.start_all_to_all_v(vec![7u64; 2 * n], &sends, &expects).map(drop);
    for error in [error, started] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(&says), "{error}");
    }
    for (send, counts) in
        [(2 * n + 1, vec![2; n]), (2 * n, vec![2; n + 1]), (1, vec![usize::MAX; n + 1])]
    {
        let expects = vec![2; n];
        let error = comm.all_to_all_v(&vec![7u64; send], &counts, &mut vec![0; 2 * n], &expects);
        let error = error.unwrap_err().to_string();
        let says = format!("must add up to the {send} elements of the slice");
        assert!(error.contains(&says), "{error}");
        let error = comm.start_all_to_all_v(vec![7u64; send], &counts, &expects).map(drop);
        assert!(error.unwrap_err().to_string().contains(&says));
    }
    let error = comm.start_all_to_all_v(vec![7u64; 2 * n], &sends, &vec![usize::MAX; n + 1]);
    assert!(error.map(drop).unwrap_err().to_string().contains("must add up"));
    // Nothing of it has left a trace: a byte goes from rank 0 to the last, and all others have
    // nothing to send, or nothing to expect.
    let count = |is_here: bool, at: usize| -> Vec<usize> {
        (0..n).map(|rank| usize::from(is_here && rank == at)).collect()
    };
    let sends = count(comm.rank() == 0, n - 1);
    let expects = count(last, 0);
    let mut received = vec![0u8; expects.iter().sum()];
    comm.all_to_all_v(&vec![9u8; sends.iter().sum()], &sends, &mut received, &expects)?;
    assert_eq!(received, vec![9; expects.iter().sum()]);
    Ok(())
}

/// Groups of a split work independently and at the same time. Ranks are ordered by key, here
/// backwards.
pub fn split(comm: &Comm, colors: usize, len: usize) -> anyhow::Result<()> {
    let rank = comm.rank();
    let ranks = comm.size();
    let color = comm.rank() % colors;
    let group = comm.split(color as u64, -(rank as i64))?;
    let mut members: Vec<u64> = vec![0; group.size()];
    group.all_gather(&[rank as u64], &mut members)?;
    let expected: Vec<u64> =
        (0..ranks).rev().filter(|r| r % colors == color).map(|r| r as u64).collect();
    assert_eq!(members, expected);
    all_collectives::<f32>(&group, len, Reduce::Sum, 0)
}
