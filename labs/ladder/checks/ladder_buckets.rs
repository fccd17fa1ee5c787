//! The check of ladder-buckets: the same model, then the time of a step.

use exercise::train;
use kit::check::{Evidence, run};
use kit::show::thousands;
use ladder::judge::{Judge, collectives};
use shardlab::Result;
use shardlab::allocator::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static JUDGE: Judge = Judge::new("ladder-buckets", train);

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
        ("4 ranks: less time than ladder-overlap", time),
    ])
}

fn time(evidence: &mut Evidence) -> Result<()> {
    let faster = JUDGE.less_time(evidence, "ladder-overlap")?;
    let job = JUDGE.job(4)?;
    let run = JUDGE.run(job)?;
    let calls = collectives(&run.ranks[0]);
    if faster {
        let of_step = &calls[..calls.len() / job.steps];
        let last = of_step.last().map_or(0, |call| call.bytes) / size_of::<f32>();
        let advice = format!(
            "Your step has {} all-reduces. The last one carries {} numbers, and nothing is left to compute beside it: the smaller it is, the \
             shorter the wait at the end. Each further one costs a latency. Try sizes between.",
            of_step.len(),
            thousands(last as u64)
        );
        return JUDGE.score_of_time(evidence, advice);
    }
    evidence.means_if(
        calls.len() == job.steps,
        "One bucket with all layers is ladder-flat: it is full when the backward pass is over, so nothing runs beside it.",
    );
    let largest = run.ranks[0].weights.iter().map(Vec::len).max();
    let largest = largest.unwrap_or_default() * size_of::<f32>();
    evidence.means_if(
        calls.iter().all(|call| call.bytes <= largest),
        "A bucket for each layer is ladder-overlap: eight calls, and each pays the link's latency.",
    );
    evidence.means_if(
        calls.iter().all(|call| call.behind == 0),
        "No bucket starts before the whole backward pass is over, so the link is idle for as long. A bucket is full when the gradients \
         of its last layer are there: start it then.",
    );
    evidence.means_if(
        calls.iter().all(|call| call.beside == 0),
        "Each bucket is waited for as soon as it starts, so nothing runs beside it. Wait when you need the result.",
    );
    let of_step = &calls[..calls.len() / job.steps];
    let all: usize = of_step.iter().map(|call| call.bytes).sum();
    evidence.means_if(
        of_step.last().is_some_and(|last| 2 * last.bytes > all),
        "The first layers' bucket starts when the backward pass is over, and nothing is left to compute beside it. It carries more than \
         half of the gradients. Smaller buckets leave less for the end.",
    );
    evidence.means(
        "There are fewer calls than layers, and a step still takes as long. Does each gradient go over the link once, and does a bucket \
         start as soon as its last gradient is there?",
    );
    Ok(())
}
