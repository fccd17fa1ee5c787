//! What this lab asks before its run, and in the quiz.

use anyhow::Result;
use kit::{Ask, Question};
use shardlab::comm::Reduce;
use shardlab::launch;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction];

/// TODO: what is asked, in a sentence. The library or the lab computes the answer, and what
/// mistakes would make of it.
fn prediction() -> Result<Question> {
    let ranks = 4;
    let sums = launch::run(ranks, |comm| {
        let mut sum = [comm.rank() as f64 + 1.0];
        comm.all_reduce(&mut sum, Reduce::Sum)?;
        Ok(sum[0])
    })?;
    Ok(Question::amount(
        ["labNN", "The run"],
        format!(
            "TODO: {ranks} ranks bring the numbers 1 to {ranks}, and add them up. What has rank 1 then?"
        ),
        |number| number.to_string(),
        sums[1],
        &[
            (2.0, "TODO: That is what rank 1 brought."),
            (3.0, "TODO: That is what ranks 0 and 1 brought."),
        ],
        "TODO: why it is so.",
    )
    .typed("", 0.0)
    .shown(format!("rank 1 2 {}", sums[1])))
}
