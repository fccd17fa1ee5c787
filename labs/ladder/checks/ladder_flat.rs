//! The check of ladder-flat: the same model, then the calls of a step and its time.

use exercise::train;
use kit::check::{Evidence, run};
use ladder::judge::{Judge, collectives};
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-flat", train);

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
        ("4 ranks: one all-reduce per step", calls),
        ("4 ranks: less time than ladder-each", time),
    ])
}

fn calls(evidence: &mut Evidence) -> Result<()> {
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    for (rank, trained) in run.ranks.iter().enumerate() {
        let calls = collectives(trained);
        evidence.same(
            format!("rank {rank}: collectives in {} steps", job.steps),
            job.steps,
            calls.len(),
        );
        evidence.means_if(
            calls.iter().any(|call| call.behind > 0) && calls[0].bytes == calls[calls.len() - 1].bytes,
            "The whole list is averaged again and again while the backward pass fills it. The mean of equal numbers is the same number, \
             so the model is right, and the link carries everything many times.",
        );
    }
    evidence.means(
        "Each call waits for the link's latency, however few its bytes are. The gradients of all layers fit into one list, and one \
         call averages them all.",
    );
    Ok(())
}

fn time(evidence: &mut Evidence) -> Result<()> {
    if JUDGE.less_time(evidence, "ladder-each")? {
        return JUDGE.score(evidence);
    }
    evidence.means(
        "One call in a step, and still no less time: does it carry more than each gradient once?",
    );
    Ok(())
}
