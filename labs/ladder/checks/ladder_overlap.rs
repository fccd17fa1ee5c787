//! The check of ladder-overlap: the same model, then the time of a step.

use exercise::train;
use kit::check::{Evidence, run};
use ladder::judge::{Judge, collectives};
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-overlap", train);

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", |evidence| {
            JUDGE.alone(evidence)
        }),
        ("2 ranks: each computes its own part", |evidence| {
            JUDGE.parts(evidence, 2)
        }),
        (
            "2 ranks: the optimizer gets the mean gradients",
            |evidence| JUDGE.gradients(evidence, 2),
        ),
        ("4 ranks: the model of one rank, bit by bit", |evidence| {
            JUDGE.weights(evidence, 4)
        }),
        ("4 ranks: less time than ladder-flat", time),
    ])
}

fn time(evidence: &mut Evidence) -> Result<()> {
    if JUDGE.less_time(evidence, "ladder-flat")? {
        return JUDGE.score(evidence);
    }
    let run = JUDGE.run(JUDGE.job(4)?)?;
    let calls = collectives(&run.ranks[0]);
    evidence.means_if(
        calls.iter().all(|call| call.behind == 0),
        "The link is idle until the whole backward pass is over: that is when the first call starts. The gradients of the last \
         layer are complete after the first of eight backward passes.",
    );
    evidence.means_if(
        calls.iter().all(|call| call.beside == 0),
        "Each call is waited for before the rank computes anything more. So the rank waits for the link, and then the link for the \
         rank, eight times. Start, go on computing, and wait when you need the result.",
    );
    evidence.means("The link works beside the backward pass, and a step still takes longer. Does each gradient go over the link once?");
    Ok(())
}
