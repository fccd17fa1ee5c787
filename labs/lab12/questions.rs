//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::{percent, significant};
use kit::{Ask, Question};
use shardlab::parallel::context::Slicing;

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, first_maximum];

/// How much of the mean work the last of four ranks has, in contiguous order.
fn prediction() -> Result<Question> {
    let ranks = Args::parse_from(["lab12"]).ranks.unwrap_or(4);
    let length = 64 * ranks;
    // Pairs of a query and a key that it sees.
    let pairs = |slicing: Slicing, rank: usize| -> f64 {
        let slices = slicing.slices(length, ranks, rank);
        slices.positions(slices.rows()).map(|position| position as f64 + 1.0).sum()
    };
    let last = |slicing| {
        let all: f64 = (0..ranks).map(|rank| pairs(slicing, rank)).sum();
        100.0 * pairs(slicing, ranks - 1) * ranks as f64 / all
    };
    let contiguous = last(Slicing::Contiguous);
    Ok(Question::amount(
        ["lab12", "The run"],
        format!(
            "{ranks} ranks hold a quarter of every sequence each, in order. A position attends to itself and to all earlier ones. How \
             many percent of the mean work of attention has the last rank?"
        ),
        |part| percent(part / 100.0),
        contiguous,
        &[
            (
                100.0,
                "That would be so if every position saw equally many keys. Those of the last rank see almost all, those of the first \
                 only a few.",
            ),
            (
                100.0 * ranks as f64,
                "That would be all of the work. The others' positions see keys, too: fewer of them.",
            ),
            (
                100.0 * 100.0 / contiguous,
                "That is the other way round: the mean beside the last rank's work.",
            ),
            (
                contiguous - 100.0,
                "That is how much more than the mean it has. The question asks for all of its work beside the mean.",
            ),
            (
                contiguous / ranks as f64,
                "That is its part of all ranks' work. The question asks for it beside the mean.",
            ),
            (
                200.0,
                "That is the very last position beside the mean of all. The last rank's other positions see fewer keys than that one.",
            ),
        ],
        "The last quarter's positions see on average 7/8 of the sequence, and all positions see on average half of it: \
         (2c-1)/c times the mean, for c ranks.",
    )
    .typed(" %", 0.03)
    .shown("(2c-1)/c"))
}

/// Why a ring keeps a maximum.
fn first_maximum() -> Result<Question> {
    // Two blocks of one key each, with these scores, and values 1 and 0.
    let [first, second] = [0.0f64, (3f64).ln()];
    let right = first.exp() / (first.exp() + second.exp());
    Ok(Question::amount(
        ["lab12", "Three exchanges"],
        "A query has seen one key in the ring's first round: its score is 0, its value 1. In the second round comes a key with the score \
         ln 3 and the value 0. What is the query's result?",
        |result| significant(result, 3),
        right,
        &[
            (
                1.0,
                "That was right after the first round. The second key takes a part of the weight, though its value is 0.",
            ),
            (
                0.5,
                "That is the mean of the two rounds' results. Each counts by the sum of its exponentials, and these are 1 and 3.",
            ),
            (
                second.exp() / (first.exp() + second.exp()),
                "That is the second key's weight. Its value is 0, and the first one's is 1.",
            ),
        ],
        "The weights are 1/4 and 3/4. A rank keeps the sum of exponentials beside its result, and shrinks both when a block adds to it.",
    ))
}
