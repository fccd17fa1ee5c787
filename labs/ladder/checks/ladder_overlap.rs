//! The check of ladder-overlap: the same model, then the time of a step.

use exercise::train;
use kit::check::{Evidence, run};
use ladder::judge::{Judge, collectives, waits_for_the_last_first};
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-overlap", train);

fn main() -> ExitCode {
    run(&[
        ("1 rank: the program that is given", |evidence| JUDGE.alone(evidence)),
        ("2 ranks: each computes its own part", |evidence| JUDGE.parts(evidence, 2)),
        ("2 ranks: the optimizer gets the mean gradients", |evidence| {
            JUDGE.gradients(evidence, 2)
        }),
        ("4 ranks: the model of one rank, bit by bit", |evidence| {
            JUDGE.weights(evidence, 4)
        }),
        ("4 ranks: less time than ladder-flat", time),
    ])
}

fn time(evidence: &mut Evidence) -> Result<()> {
    let faster = JUDGE.less_time(evidence, "ladder-flat")?;
    let run = JUDGE.run(JUDGE.job(4)?)?;
    if faster {
        let advice = if waits_for_the_last_first(&run.ranks[0]) {
            "You wait first for the call that began last. The others have ended long before, and their layers' updates could run meanwhile: \
             wait in the order in which the calls began."
        } else {
            "Look at what waits at the end of a step: does each update run as soon as its call has ended, and does each call begin as \
             soon as its gradient is there?"
        };
        return JUDGE.score_of_time(evidence, advice);
    }
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
