//! The check of lab04-holds: the library's formula for one rank's memory, stage by stage.

use exercise::{Answers, answers};
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory};
use std::process::ExitCode;

const PARAMETERS: u64 = 12_000_000;
const RANKS: u64 = 4;

fn main() -> ExitCode {
    run(&[
        ("MB in stage 1", |evidence| stage(evidence, 1)),
        ("MB in stage 2", |evidence| stage(evidence, 2)),
        ("MB in stage 3", |evidence| stage(evidence, 3)),
    ])
}

/// MB of parameters, gradients and optimizer state on one rank.
fn parts(stage: usize, ranks: u64, each: BytesEach) -> [u64; 3] {
    zero_memory(stage, PARAMETERS, ranks, each).map(|bytes| bytes / 1_000_000)
}

fn stage(evidence: &mut Evidence, stage: usize) -> Result<()> {
    let Answers {
        stage_1,
        stage_2,
        stage_3,
    } = answers();
    let got = [stage_1, stage_2, stage_3][stage - 1];
    let sum = |parts: [u64; 3]| parts.iter().sum::<u64>();
    let right = parts(stage, RANKS, BytesEach::F32);
    let whole = parts(0, RANKS, BytesEach::F32);
    let at = format!("MB on one of {RANKS} ranks, stage {stage}");
    if evidence.same(at, sum(right), got) {
        return Ok(());
    }
    let sharded = |i: usize| right[i] < whole[i];
    let only =
        |keep: &dyn Fn(usize) -> bool| (0..3).filter(|&i| keep(i)).map(|i| right[i]).sum::<u64>();
    // One of the three is sharded, and not the optimizer's state.
    let one = |i: usize| sum(whole) - whole[i] + whole[i] / RANKS;

    evidence.means_if(
        got == sum(whole),
        "This is the whole, and not one rank's share: in stage 0 every rank holds all three.",
    );
    evidence.means_if(
        got == RANKS * sum(right),
        "This is what all four ranks hold together. One rank has to fit it into its own memory: no rank can use the memory of another.",
    );
    evidence.means_if(
        got == sum(right) * 1_000_000,
        "These are bytes. 1 MB is a million of them.",
    );
    evidence.means_if(
        stage < 3 && got == only(&sharded),
        "This is the sharded part alone. What this stage does not shard is still whole on every rank, and takes most of the memory.",
    );
    evidence.means_if(
        stage < 3 && got == only(&|i| !sharded(i)),
        "The sharded part is missing: a rank still holds its quarter of it.",
    );
    evidence.means_if(
        got == sum(parts(stage, RANKS, BytesEach::MIXED)),
        "These are the bytes of mixed precision: 2 per parameter, 2 per gradient, 12 for the optimizer. In f32 they are 4, 4 and 8. \
         In stages 0 and 3 the sum is the same.",
    );
    evidence.means_if(
        stage == 1 && (got == one(0) || got == one(1)),
        "One of the three is sharded here, but not the one that stage 1 begins with. ZeRO shards the largest first: the optimizer's \
         state.",
    );
    evidence.means_if(
        stage == 1 && got == sum(parts(2, RANKS, BytesEach::F32)),
        "Here the gradients are sharded as well: that is stage 2.",
    );
    evidence.means_if(
        stage == 2 && got == one(1),
        "Stage 2 shards the gradients and still shards the optimizer's state. Each stage adds to the one before.",
    );
    evidence.means_if(
        stage == 3 && got == one(0),
        "Stage 3 shards the parameters and still shards gradients and optimizer state. Each stage adds to the one before.",
    );
    evidence.means_if(
        stage == 3 && got == sum(parts(2, RANKS, BytesEach::F32)),
        "This is stage 2: every rank still holds all parameters.",
    );
    evidence.means(
        "Go through parameters, gradients and optimizer state one by one. A rank holds all of one, or a quarter, as the stage says. \
         Then add up the three.",
    );
    Ok(())
}
