//! What this lab asks before its run, and in the quiz.

use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::percent;
use kit::{Ask, Question};
use shardlab::data::Corpus;
use shardlab::plan::{AttentionScores, DropoutMasks, Kept, Shards};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction];

/// What part of one rank's activations each of two tensor ranks keeps.
fn prediction() -> Result<Question> {
    let ranks = 2;
    let config = Args::parse_from(["lab05"]).train.resolve(1, Some(1), &Corpus::find(None)?)?;
    let shape = config.shape;
    let dropout = DropoutMasks::Kept;
    let kept = |tensor: usize, sequence: bool| {
        let shards = Shards { shape, tensor, pipeline: 1, sequence, rows: shape.vocabulary };
        shards.activations(config.batch, dropout)
    };
    let one = kept(1, false);
    let of_a_block = Kept::of(&shape, 1.0, AttentionScores::None, dropout);
    let whole = of_a_block.stream / of_a_block.on_a_rank(1, 1);
    let in_percent = |part: f64| 100.0 * part;
    Ok(Question::amount(
        ["lab05", "The run"],
        format!(
            "{ranks} tensor ranks share every layer of a GPT, and each holds half of its parameters. How many percent of one rank's \
             activations does each of them keep for the backward pass?"
        ),
        |part| percent(part / 100.0),
        in_percent(kept(ranks, false) / one),
        &[
            (
                in_percent(1.0 / ranks as f64),
                "That is an equal part of everything. But norms and dropout run on whole copies, and both ranks keep their inputs.",
            ),
            (
                in_percent(kept(ranks, true) / one),
                "That is with sequence parallelism, which also divides what norms and dropout keep. The run shows both.",
            ),
            (
                in_percent(whole),
                "That is only what both ranks have whole. Each also keeps its half of the rest.",
            ),
            (
                in_percent(1.0),
                "That would be all. What lies inside attention and the MLP is divided.",
            ),
        ],
        "Heads and the MLP's inner width are divided, with the matrices. Inputs of norms and masks of dropout on the residual stream are \
         whole on both ranks.",
    )
    .typed(" %", 0.03)
    .shown("(24 + 48/t) sbh"))
}
