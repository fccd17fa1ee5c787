//! What this lab asks before its run, and in the quiz.

use crate::lesson::around_the_ring;
use anyhow::Result;
use kit::place::seats;
use kit::{Ask, Question};
use shardlab::launch;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, local_rank];

/// Which number reaches rank 0 last.
fn prediction() -> Result<Question> {
    let ranks = 4;
    let seen = launch::run(ranks, |comm| around_the_ring(&comm, comm.rank() as u64))?;
    let number = |round: usize| seen[0][round] as f64;
    let row: Vec<String> = seen[0].iter().map(u64::to_string).collect();
    Ok(Question::amount(
        ["lab00", "The run"],
        format!(
            "{ranks} ranks stand in a ring, and each has its own number, 0 to {}. In every round each rank passes on, to its right \
             neighbour, what its left neighbour sent last. Which number does rank 0 receive in round 3?",
            ranks - 1
        ),
        |number| number.to_string(),
        number(3),
        &[
            (number(1), "That comes in round 1, from the left neighbour itself."),
            (number(2), "That comes in round 2, from the left neighbour's left neighbour."),
            (
                number(0),
                "That is rank 0's own number, which would come back in round 4. After three rounds every rank has seen every number.",
            ),
        ],
        "A number moves one rank to the right in each round. So what comes in round 3 began three ranks to the left, which in a \
         ring of four is one rank to the right.",
    )
    .typed("", 0.0)
    .shown(format!("rank 0 {}", row.join(" "))))
}

/// Which GPU a rank takes, where a node before it is not full.
fn local_rank() -> Result<Question> {
    let on_each = [3, 4, 4];
    let gpus = 4;
    let asked = 8;
    let host = |(node, &ranks): (usize, &usize)| vec![format!("node {node}"); ranks];
    let hosts: Vec<String> = on_each.iter().enumerate().flat_map(host).collect();
    let seat = seats(&hosts)[asked];
    Ok(Question::amount(
        ["lab00", "The idea"],
        format!(
            "Ranks 0 to 2 run on one node, ranks 3 to 6 on the next, ranks 7 to 10 on the last. Each node has {gpus} GPUs, \
             numbered from 0, and a rank takes the one with its local rank. Which GPU does rank {asked} take?"
        ),
        |gpu| format!("GPU {gpu}"),
        seat.local_rank as f64,
        &[
            (
                (asked % gpus) as f64,
                "That is the remainder of the rank by the GPUs of a node. It holds only where every node before is full, and the \
                 first one has a rank less.",
            ),
            (seat.node as f64, "That is the number of the rank's node."),
            (asked as f64, "That is its rank in the whole job, and no node has so many GPUs."),
        ],
        "The local rank is the number of ranks before it on the same node.",
    ))
}
