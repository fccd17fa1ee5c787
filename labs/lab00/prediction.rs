//! What a reader predicts before the run.

use crate::lesson::around_the_ring;
use anyhow::Result;
use kit::Question;
use shardlab::launch;

/// Which number reaches rank 0 last.
///
/// # Errors
/// If ranks cannot be started.
pub fn prediction() -> Result<Question> {
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
