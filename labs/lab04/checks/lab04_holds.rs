//! The check of lab04-holds: the library's formula for one rank's memory.

use exercise::one_rank;
use kit::check::{Evidence, run};
use shardlab::Result;
use shardlab::plan::{BytesEach, zero_memory};
use std::process::ExitCode;

const PARAMETERS: u64 = 15_000_000_000;
const RANKS: u64 = 10;

pub fn main() -> ExitCode {
    run(&[("what one of 10 ranks holds in stage 2", holds)])
}

/// GB of parameters, gradients and optimizer state on one rank.
fn parts(stage: usize, each: BytesEach) -> [u64; 3] {
    zero_memory(stage, PARAMETERS, RANKS, each).map(|bytes| bytes / 1_000_000_000)
}

fn holds(evidence: &mut Evidence) -> Result<()> {
    let got: u64 = one_rank();
    let sum = |stage: usize| parts(stage, BytesEach::F32).iter().sum::<u64>();
    let (right, whole) = (parts(2, BytesEach::F32), parts(0, BytesEach::F32));
    evidence.answer("GB on one rank", sum(2), got);
    let only = |divided: bool| {
        let keep = (0..3).filter(|&i| (right[i] < whole[i]) == divided);
        keep.map(|i| right[i]).sum::<u64>()
    };
    evidence.means_if(got == sum(0), "This is stage 0, where every rank holds all three.");
    evidence
        .means_if(got == sum(1), "This is stage 1, where every rank still holds all gradients.");
    evidence.means_if(got == sum(3), "This is stage 3, where no rank holds all parameters.");
    evidence.means_if(
        got == RANKS * sum(2),
        "This is what all ten ranks hold together. No rank can use the memory of another.",
    );
    evidence.means_if(
        got == whole[0] + right[1] + whole[2],
        "Only the gradients are divided here. Each stage divides what the one before divides, and one more of the three.",
    );
    evidence.means_if(
        got == only(true),
        "This is only the divided part. What stage 2 does not divide is whole on every rank.",
    );
    evidence.means_if(
        got == only(false),
        "This is the part that is not divided. A rank also holds its share of the rest.",
    );
    evidence.means_if(
        got == parts(2, BytesEach::MIXED).iter().sum::<u64>(),
        "These are the bytes of mixed precision: 2 for a parameter, 2 for its gradient, 12 for the optimizer. This job is in f32, \
         as the picture's numbers are.",
    );
    evidence.means_if(got == sum(2) * 1_000_000_000, "These are bytes, not GB.");
    for (i, name) in ["parameters", "gradients", "moments"].into_iter().enumerate() {
        evidence.means_if(
            got == sum(2) - right[i] && got != only(true),
            format!("The {name} are missing: a rank holds all of them, or its share."),
        );
    }
    evidence.means(
        "Go through the three one by one. Does stage 2 divide them? A rank holds its share of one, or all of it.",
    );
    Ok(())
}
