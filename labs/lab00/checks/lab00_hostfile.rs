//! The check of lab00-hostfile: one process alone, then whole jobs, rank by rank.

use exercise::{Place, place};
use kit::check::{Evidence, run};
use kit::place::seats;
use shardlab::Result;
use std::process::ExitCode;

const OPEN_MPI: [&str; 2] = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"];
const MPICH: [&str; 2] = ["PMI_RANK", "PMI_SIZE"];

fn main() -> ExitCode {
    run(&[
        ("a process without a launcher is rank 0 of 1", alone),
        ("Open MPI's variables give rank and size", |evidence| {
            variables(evidence, OPEN_MPI)
        }),
        ("so do MPICH's", |evidence| variables(evidence, MPICH)),
        ("nodes are numbered in the order of the file", |evidence| {
            job(evidence, &["nid7", "nid7", "nid3", "nid3"])
        }),
        ("each node counts its own ranks", |evidence| {
            job(evidence, &["a", "b", "b", "b", "c", "c"])
        }),
        ("also if hosts take turns", |evidence| {
            job(evidence, &["a", "a", "b", "a", "c", "b", "c"])
        }),
        ("names that begin alike are different hosts", |evidence| {
            job(evidence, &["nid1", "nid12", "nid1", "nid2", "nid12"])
        }),
    ])
}

fn alone(evidence: &mut Evidence) -> Result<()> {
    let expected = Place { rank: 0, size: 1, node: 0, local_rank: 0 };
    for (at, file) in [
        ("no variables, one host in the file", "laptop\n"),
        ("no variables, an empty host file", ""),
        ("no variables, a file of four ranks", "a\na\nb\nb\n"),
    ] {
        evidence.given(at);
        let got = place(&|_| None, file);
        compare(evidence, at.into(), expected, got);
        evidence.means_if(
            got.size == 4,
            "The size is that of the file's job. This process was not started by a launcher, so it is a job of its own, even where \
             a file lies about that another job has left.",
        );
        evidence
            .means_if(got.local_rank == 1, "Local ranks begin at 0: do not count the rank itself.");
    }
    evidence.means("A program that you start by hand is a whole job of one rank, for instance lab03 on a laptop.");
    Ok(())
}

/// Compares rank and size in a job on two hosts.
fn variables(evidence: &mut Evidence, names: [&'static str; 2]) -> Result<()> {
    let hosts = ["a", "a", "b", "b"];
    let mut alone = true;
    for rank in 0..4 {
        let at = format!("{}={rank}, {}=4", names[0], names[1]);
        evidence.given(format!("{at}, and the hosts {hosts:?}"));
        let Place { rank: found, size, .. } =
            place(&environment(names, rank, 4), &hosts.join("\n"));
        evidence.row(
            (found, size) == (rank, 4),
            at,
            format!("rank {rank} of 4"),
            format!("rank {found} of {size}"),
        );
        alone &= (found, size) == (0, 1);
    }
    evidence.means_if(
        alone,
        "No process has found its variables: each believes that it is rank 0 of 1, and trains by itself.",
    );
    evidence.means("A rank with a wrong number trains on a different rank's data, and no rank trains on its own data.");
    Ok(())
}

/// Compares the places of all ranks of a job.
fn job(evidence: &mut Evidence, hosts: &[&str]) -> Result<()> {
    let size = hosts.len();
    let found = |rank: usize| {
        evidence.given(format!("rank {rank} of {size}, and the hosts {hosts:?}"));
        place(&environment(OPEN_MPI, rank, size), &hosts.join("\n"))
    };
    let found: Vec<Place> = (0..size).map(found).collect();
    let names: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
    let seats = seats(&names);
    for (rank, seat) in seats.iter().enumerate() {
        let expected = Place { rank, size, node: seat.node, local_rank: seat.local_rank };
        compare(evidence, format!("rank {rank}, on {}", hosts[rank]), expected, found[rank]);
    }

    evidence.means_if(
        hosts.contains(&"nid12"),
        "nid12 is not nid1, though its name begins so. Compare whole names.",
    );
    let nodes = seats[0].nodes;
    let each = size / nodes;
    let all = |sign: &dyn Fn(usize, Place) -> bool| {
        found.iter().enumerate().all(|(rank, place)| sign(rank, *place))
    };
    evidence.means_if(
        !evidence.agrees() && all(&|rank, place| place.local_rank == rank),
        "The local rank begins at 0 on every node, because it picks a GPU there. No node has a GPU for every rank of the job.",
    );
    let wrong_local = found
        .iter()
        .zip(&seats)
        .any(|(place, seat)| place.local_rank != seat.local_rank);
    evidence.means_if(
        wrong_local && all(&|rank, place| place.local_rank == rank % each),
        "rank % (ranks per node) is the local rank only if all nodes have equally many ranks and the file fills one \
         node after the other. Two ranks with the same local rank share a GPU of their node, and a different GPU idles.",
    );
    let wrong_node = found.iter().zip(&seats).any(|(place, seat)| place.node != seat.node);
    let lines = |rank: usize| hosts.iter().filter(move |host| **host == hosts[rank]);
    evidence.means_if(
        wrong_local && all(&|rank, place| place.local_rank + 1 == lines(rank).count()),
        "Each rank counts all ranks of its node, also those after it.",
    );
    let first_line = |rank: usize| hosts.iter().position(|host| *host == hosts[rank]);
    evidence.means_if(
        wrong_local && all(&|rank, place| rank.checked_sub(place.local_rank) == first_line(rank)),
        "You count all lines since your node's first one, also those of other nodes.",
    );
    evidence.means_if(
        wrong_node && all(&|rank, place| Some(place.node) == first_line(rank)),
        "This is the line in which the file first names the host. A node's number counts different names, not lines.",
    );
    let mut runs = hosts.to_vec();
    runs.dedup();
    evidence.means_if(
        wrong_node && all(&|rank, place| runs.get(place.node) == Some(&hosts[rank])),
        "Each change of name counts as a new node. A host that comes back is the node that it was.",
    );
    evidence.means_if(
        wrong_node && all(&|rank, place| place.node == rank % nodes || place.node == rank / each),
        "You cannot compute a node's number from the rank: only the file says how many ranks each node has.",
    );
    evidence.means_if(
        wrong_node,
        "Nodes are numbered in the order in which the file first names them, not by their names.",
    );
    evidence.means(
        "Two ranks of a node with the same local rank share a GPU, and a local rank that is too large picks none.",
    );
    Ok(())
}

fn environment(
    names: [&'static str; 2],
    rank: usize,
    size: usize,
) -> impl Fn(&str) -> Option<String> {
    move |name| names.iter().position(|n| *n == name).map(|i| [rank, size][i].to_string())
}

fn compare(evidence: &mut Evidence, at: String, expected: Place, got: Place) {
    let said = |place: Place| {
        // Show rank and size only if they are wrong.
        let same = (got.rank, got.size) == (expected.rank, expected.size);
        let number = if same {
            String::new()
        } else {
            format!("rank {} of {}, ", place.rank, place.size)
        };
        format!("{number}node {}, local rank {}", place.node, place.local_rank)
    };
    evidence.row(expected == got, at, said(expected), said(got));
}
