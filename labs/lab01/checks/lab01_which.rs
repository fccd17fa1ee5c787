//! The check of lab01-which: three ranks make the call that the reader names, and the one that the picture shows.

use exercise::{Collective, calls};
use kit::check::{Evidence, run};
use shardlab::comm::{Comm, Reduce};
use shardlab::{Result, launch};
use std::process::ExitCode;

fn main() -> ExitCode {
    run(&[
        ("the call of A", |evidence| compare(evidence, 0)),
        ("the call of B", |evidence| compare(evidence, 1)),
        ("the call of C", |evidence| compare(evidence, 2)),
        ("the call of D", |evidence| compare(evidence, 3)),
        ("the call of E", |evidence| compare(evidence, 4)),
    ])
}

/// The calls of the picture, and the rank that sends or gets everything, where there is one.
const SHOWN: [(Collective, usize); 5] = [
    (Collective::AllReduce, 1),
    (Collective::Broadcast, 1),
    (Collective::ReduceScatter, 1),
    (Collective::Scatter, 1),
    (Collective::Reduce, 2),
];

/// What this rank gets from a call.
fn gets(comm: &Comm, call: Collective, root: usize) -> Result<Vec<u64>> {
    let rank = comm.rank();
    let brings: Vec<u64> = (1..=3).map(|i| i * 10_u64.pow(rank as u32)).collect();
    let mut whole = brings.clone();
    let mut part = vec![0];
    Ok(match call {
        Collective::AllReduce => {
            comm.all_reduce(&mut whole, Reduce::Sum)?;
            whole
        }
        Collective::Reduce => {
            comm.reduce(&mut whole, Reduce::Sum, root)?;
            if rank == root { whole } else { Vec::new() }
        }
        Collective::Broadcast => {
            comm.broadcast(&mut whole, root)?;
            whole
        }
        Collective::AllGather => {
            let mut all = vec![0; 9];
            comm.all_gather(&brings, &mut all)?;
            all
        }
        Collective::ReduceScatter => {
            comm.reduce_scatter(&brings, &mut part, Reduce::Sum)?;
            part
        }
        Collective::Scatter => {
            comm.scatter(&brings, &mut part, root)?;
            part
        }
    })
}

/// What each of three ranks gets, as the picture shows it.
fn result(call: Collective, root: usize) -> Result<Vec<String>> {
    launch::run(3, |comm| {
        let numbers = gets(&comm, call, root)?;
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        Ok(if numbers.is_empty() {
            "-".into()
        } else {
            numbers.join(" ")
        })
    })
}

/// Its name, with what it does.
fn does(call: Collective) -> &'static str {
    match call {
        Collective::AllReduce => "An all-reduce leaves all sums on every rank.",
        Collective::Reduce => "A reduce leaves the sums on one rank, and the others get nothing.",
        Collective::Broadcast => {
            "A broadcast copies one rank's numbers to every rank, and adds up nothing."
        }
        Collective::AllGather => {
            "An all-gather gives all ranks' numbers to every rank, one after the other, and adds up nothing."
        }
        Collective::ReduceScatter => {
            "A reduce-scatter adds up, and leaves one part of the sums on each rank."
        }
        Collective::Scatter => {
            "A scatter hands out one rank's numbers, a part to each rank, and adds up nothing."
        }
    }
}

/// What a training would lose, with the second call in place of the first.
fn loses(shown: Collective, named: Collective) -> &'static str {
    use Collective::*;
    match (shown, named) {
        (AllReduce, Reduce) => {
            "Averaged in this way, gradients would reach one rank alone, and the others would take a different step."
        }
        (AllReduce, ReduceScatter) => {
            "Averaged in this way, each rank would have a part of the gradients: enough for ZeRO, and too little for DDP."
        }
        (ReduceScatter, AllReduce) => {
            "Where a rank needs one part of the sums, an all-reduce sends twice what it has to."
        }
        (ReduceScatter, Scatter) | (AllReduce, Broadcast) => {
            "Averaged in this way, the gradients would be those of one rank, and the others' work would be lost."
        }
        (Scatter, ReduceScatter) => {
            "If a rank hands out training data in this way, the others' numbers are added to its texts."
        }
        (Broadcast, AllReduce) => {
            "At the start of a training, ranks would begin with the sum of all ranks' weights, and not with one rank's."
        }
        (Reduce, AllReduce) => {
            "Where one rank needs the sums, for instance to print a loss, an all-reduce sends more than it has to."
        }
        _ => "Compare the sums, and who holds how much of them.",
    }
}

fn compare(evidence: &mut Evidence, which: usize) -> Result<()> {
    let (shown, root) = SHOWN[which];
    let named = calls()[which];
    let expected = result(shown, root)?;
    let got = result(named, root)?;
    for (rank, (expected, got)) in expected.iter().zip(&got).enumerate() {
        let at = format!("rank {rank}: the picture, and your {named:?}");
        evidence.row(expected == got, at, expected, got);
    }
    evidence.means(format!("{} {}", does(named), loses(shown, named)));
    Ok(())
}
