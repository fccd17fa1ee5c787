//! The ring all-reduce, round by round.

use crate::draw::{self, Chunk};
use shardlab::comm::algorithms::{Algorithm, Arrival, Collective, Task};

/// The ring all-reduce of `ranks` ranks, one number per chunk, before its first round and after
/// each round: the chunk that each rank has sent, and the chunks that each rank holds.
pub fn ring(ranks: usize) -> Vec<(Vec<usize>, Vec<Vec<Chunk>>)> {
    let task = Task::new(Collective::AllReduce, Algorithm::Ring, ranks, ranks, 4, 0)
        .expect("the ring is an all-reduce");
    let own = |rank: usize| vec![(0..ranks).map(|other| other == rank).collect::<Chunk>(); ranks];
    let mut states = vec![(Vec::new(), (0..ranks).map(own).collect::<Vec<_>>())];
    let mut left: Vec<_> = (0..ranks).map(|rank| task.rounds(rank)).collect();
    for round in 0..task.total_rounds() {
        let mut sent = Vec::new();
        let before = &states[round].1;
        let mut held = before.clone();
        for (rank, chunks) in held.iter_mut().enumerate() {
            let Some((send, recv)) = left[rank].next().and_then(|round| round.send.zip(round.recv))
            else {
                continue;
            };
            sent.push(send.range.start);
            for i in recv.range {
                let there = chunks[i].iter().zip(&before[recv.from][i]);
                chunks[i] = there
                    .map(|(&old, &new)| new || (old && recv.arrival == Arrival::Combine))
                    .collect();
            }
        }
        states.push((sent, held));
    }
    states
}

/// The chunks of the ring before it, after its reduce-scatter, and after its all-gather. Partial
/// sums are left out: only complete chunks are shown.
pub(super) fn moments() -> String {
    let states = ring(4);
    let complete = |chunk: &Chunk| {
        if chunk.contains(&false) {
            vec![false; chunk.len()]
        } else {
            chunk.clone()
        }
    };
    let after = |round: usize| {
        states[round]
            .1
            .iter()
            .map(|chunks| chunks.iter().map(complete).collect())
            .collect()
    };
    let moments = [
        ("before".to_owned(), states[0].1.clone()),
        ("after reduce-scatter".to_owned(), after(3)),
        ("after all-gather".to_owned(), after(6)),
    ];
    let title = "An all-reduce of four ranks is a reduce-scatter and an all-gather";
    draw::moments(title, &moments)
}
