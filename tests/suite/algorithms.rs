//! Every algorithm against the definition of its collective, in values and in messages.

use super::{by_algorithm, formula};
use half::{bf16, f16};
use shardlab::comm::algorithms::{self, Algorithm, Collective, Task};
use shardlab::comm::{Comm, CommTraffic, Element, Reduce};
use std::fmt::Debug;
use std::ops::Range;

/// A test's values: 1, 2 or 3 (in products 1 or 2), whose sums and products over nine ranks are
/// exact in every type.
pub trait Number: Element + PartialEq + Debug {
    fn from_small(x: u64) -> Self;
}
macro_rules! number { ($($t:ty => $f:expr),*) => { $(impl Number for $t { fn from_small(x: u64) -> $t { $f(x) } })* } }
number!(u8 => |x| x as u8, i32 => |x| x as i32, i64 => |x| x as i64, u64 => |x| x, f32 => |x| x as f32,
        f64 => |x| x as f64, f16 => |x| f16::from_f32(x as f32), bf16 => |x| bf16::from_f32(x as f32));

fn value(op: Reduce, rank: usize, i: usize) -> u64 {
    let most = if op == Reduce::Prod { 2 } else { 3 };
    ((rank * 7 + i * 3 + rank * i + i / 5) % most + 1) as u64
}

/// Elements of what a rank brings.
fn bring<T: Number>(op: Reduce, rank: usize, elements: Range<usize>) -> Vec<T> {
    elements.map(|i| T::from_small(value(op, rank, i))).collect()
}

/// The reduction of all ranks' element `i`, by definition.
fn reduced<T: Number>(op: Reduce, ranks: usize, i: usize) -> T {
    let values = (0..ranks).map(|rank| value(op, rank, i));
    match op {
        Reduce::Sum => T::from_small(values.sum()),
        Reduce::Min => T::from_small(values.min().unwrap()),
        Reduce::Max => T::from_small(values.max().unwrap()),
        Reduce::Prod => T::from_small(values.product()),
        // The sum is exact, so that only the division rounds.
        Reduce::Mean => T::narrow(T::divide(T::from_small(values.sum()).widen(), ranks)),
    }
}

/// Runs a collective by an algorithm, and compares the result with the definition. The collective
/// must have this algorithm.
pub fn as_defined<T: Number>(
    comm: &Comm,
    collective: Collective,
    algorithm: Algorithm,
    len: usize,
    op: Reduce,
    root: usize,
) -> anyhow::Result<()> {
    let rank = comm.rank();
    let n = comm.size();
    let mine = || bring::<T>(op, rank, 0..len);
    let long = || bring::<T>(op, rank, 0..n * len);
    let zeros = |len| vec![T::zeroed(); len];
    let on_root = |len| zeros(if rank == root { len } else { 0 });
    let my_part = rank * len..(rank + 1) * len;
    let by_definition =
        |elements: Range<usize>| -> Vec<T> { elements.map(|i| reduced(op, n, i)).collect() };
    let everyone =
        |elements: Range<usize>| (0..n).flat_map(move |r| bring::<T>(op, r, elements.clone()));
    // What a rank gives, what it gets into, and what it gets.
    let (give, mut got, expected) = match collective {
        Collective::AllReduce => (Vec::new(), mine(), by_definition(0..len)),
        Collective::Reduce => {
            let expected = if rank == root { by_definition(0..len) } else { mine() };
            (Vec::new(), mine(), expected)
        }
        Collective::Broadcast => (Vec::new(), mine(), bring(op, root, 0..len)),
        Collective::AllGather => (mine(), zeros(n * len), everyone(0..len).collect()),
        Collective::ReduceScatter => (long(), zeros(len), by_definition(my_part)),
        Collective::Scatter => {
            let parts = if rank == root { long() } else { Vec::new() };
            (parts, zeros(len), bring(op, root, my_part))
        }
        Collective::Gather => {
            let expected = if rank == root {
                everyone(0..len).collect()
            } else {
                Vec::new()
            };
            (mine(), on_root(n * len), expected)
        }
        Collective::AllToAll => (long(), zeros(n * len), everyone(my_part).collect()),
    };
    by_algorithm::run(comm, (collective, algorithm), (&give, &mut got), op, root)?;
    assert_eq!(
        got,
        expected,
        "{} {op:?} of {len} elements on {n} ranks, root {root}",
        name(collective, algorithm)
    );
    Ok(())
}

fn name(collective: Collective, algorithm: Algorithm) -> String {
    format!("{}, {}", collective.name(), algorithm.name())
}

/// Every algorithm of every collective, and what `auto` chooses.
pub fn pairs() -> Vec<(Collective, Algorithm)> {
    let of = |&collective: &Collective| {
        collective
            .algorithms()
            .iter()
            .chain([&Algorithm::Auto])
            .map(move |&algorithm| (collective, algorithm))
    };
    Collective::ALL.iter().flat_map(of).collect()
}

/// [`as_defined`] for every algorithm of every collective, in all eight types.
pub fn all_types(comm: &Comm, len: usize, op: Reduce, root: usize) -> anyhow::Result<()> {
    for (collective, algorithm) in pairs() {
        as_defined::<f16>(comm, collective, algorithm, len, op, root)?;
        as_defined::<bf16>(comm, collective, algorithm, len, op, root)?;
        as_defined::<f32>(comm, collective, algorithm, len, op, root)?;
        as_defined::<f64>(comm, collective, algorithm, len, op, root)?;
        if op != Reduce::Mean {
            as_defined::<u8>(comm, collective, algorithm, len, op, root)?;
            as_defined::<i32>(comm, collective, algorithm, len, op, root)?;
            as_defined::<i64>(comm, collective, algorithm, len, op, root)?;
            as_defined::<u64>(comm, collective, algorithm, len, op, root)?;
        }
    }
    Ok(())
}

/// Numbers whose sums depend on the order in which they are added.
fn rough(rank: usize, len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((rank * 7919 + i * 104_729) as f32).sin() * 10f32.powi((i % 7) as i32 - 3))
        .collect()
}

/// All ranks end with the same bits, twice in a row. The result is a sum: it differs from the exact
/// sum by rounding alone.
pub fn same_bits(comm: &Comm, len: usize) -> anyhow::Result<()> {
    let n = comm.size();
    for &algorithm in Collective::AllReduce.algorithms() {
        let sum = || -> anyhow::Result<Vec<f32>> {
            let mut x = rough(comm.rank(), len);
            algorithms::all_reduce(comm, &mut x, Reduce::Sum, algorithm)?;
            Ok(x)
        };
        let first = sum()?;
        let again = sum()?;
        let bits: Vec<u64> = first.iter().map(|x| u64::from(x.to_bits())).collect();
        let again: Vec<u64> = again.iter().map(|x| u64::from(x.to_bits())).collect();
        assert_eq!(bits, again, "{algorithm:?} on {n} ranks differs from run to run");
        let mut least = bits.clone();
        let mut most = bits;
        comm.all_reduce(&mut least, Reduce::Min)?;
        comm.all_reduce(&mut most, Reduce::Max)?;
        assert_eq!(least, most, "{algorithm:?} on {n} ranks: not all have the same bits");
        let all: Vec<Vec<f32>> = (0..n).map(|rank| rough(rank, len)).collect();
        for (i, x) in first.iter().enumerate() {
            let exact: f64 = all.iter().map(|part| f64::from(part[i])).sum();
            let size: f64 = all.iter().map(|part| f64::from(part[i]).abs()).sum();
            let bound = n as f64 * f64::from(f32::EPSILON) / 2.0 * size;
            assert!(
                (f64::from(*x) - exact).abs() <= bound,
                "{algorithm:?} on {n} ranks: {x} for {exact}"
            );
        }
    }
    Ok(())
}

/// This rank's traffic in one run of an algorithm on f32, by the meter.
fn measured(
    comm: &Comm,
    collective: Collective,
    algorithm: Algorithm,
    len: usize,
    root: usize,
) -> anyhow::Result<CommTraffic> {
    comm.barrier()?;
    let before = comm.traffic();
    as_defined::<f32>(comm, collective, algorithm, len, Reduce::Sum, root)?;
    Ok(comm.traffic() - before)
}

/// Compares the meter with the list of rounds, and with the formulas if all parts are equally long.
pub fn costs(comm: &Comm, len: usize, root: usize) -> anyhow::Result<()> {
    let n = comm.size();
    for (collective, algorithm) in pairs() {
        let traffic = measured(comm, collective, algorithm, len, root)?;
        let task = Task::new(collective, algorithm, n, len, 4, root)?;
        let name =
            format!("{} of {len} elements on {n} ranks, root {root}", name(collective, algorithm));

        let rounds: Vec<_> = task.rounds(comm.rank()).collect();
        let sends: Vec<usize> = rounds
            .iter()
            .filter_map(|round| Some(4 * round.send.as_ref()?.range.len()))
            .collect();
        assert_eq!(
            (traffic.messages, traffic.bytes),
            (sends.len() as u64, sends.iter().sum::<usize>() as u64),
            "{name}"
        );
        assert!(
            traffic.rounds <= rounds.len() as u64,
            "{name}: {} rounds of {}",
            traffic.rounds,
            rounds.len()
        );

        let mut most = [traffic.rounds, traffic.messages, traffic.bytes];
        comm.all_reduce(&mut most, Reduce::Max)?;
        let equal_parts =
            collective != Collective::AllReduce || len.is_multiple_of(n * n.next_power_of_two());
        match formula(&task, 4) {
            Some(formula) if equal_parts => {
                assert_eq!(
                    most,
                    [formula.rounds, formula.messages, formula.bytes as u64],
                    "{name}: {}",
                    formula.words
                );
            }
            Some(formula) => {
                assert_eq!(
                    most[..2],
                    [formula.rounds, formula.messages],
                    "{name}: {}",
                    formula.words
                );
                let off = (most[2] as f64 - formula.bytes).abs();
                // Two parts differ by at most one element.
                assert!(
                    off <= 4.0 * most[1] as f64,
                    "{name}: {} bytes, {}",
                    most[2],
                    formula.bytes
                );
            }
            None => assert!(!n.is_power_of_two(), "{name} has no formula"),
        }
    }
    Ok(())
}

/// The solution of the ring exercise adds up, for parts of any length.
pub fn exercise(comm: &Comm) -> anyhow::Result<()> {
    for len in [0, 1, comm.size(), 1031] {
        let mut x = bring(Reduce::Sum, comm.rank(), 0..len);
        let before = comm.traffic();
        super::lab01_ring::all_reduce(comm, &mut x)?;
        let traffic = comm.traffic() - before;
        assert_eq!(x, (0..len).map(|i| reduced(Reduce::Sum, comm.size(), i)).collect::<Vec<f32>>());
        assert_eq!(traffic.rounds, 2 * (comm.size() as u64 - 1));
    }
    Ok(())
}
