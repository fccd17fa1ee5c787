//! The check of ladder-each: the ranks share the batch, and train the model of one rank. Then the
//! time of a step.

use exercise::train;
use kit::check::{Evidence, run};
use ladder::judge::Judge;
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-each", train);

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
        ("4 ranks: less time than one rank", time),
    ])
}

fn time(evidence: &mut Evidence) -> Result<()> {
    if JUDGE.less_time(evidence, "")? {
        return JUDGE.score(evidence);
    }
    evidence.means(
        "The ranks share the batch, and a step still takes as long as on one rank. What else do they compute or send? Gradients go \
         over the link once in a step.",
    );
    Ok(())
}
