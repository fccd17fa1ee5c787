//! What this lab asks before its run, and in the quiz.

use crate::apparatus::formulas::calls;
use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::percent;
use kit::{Ask, Question};
use shardlab::data::Corpus;
use shardlab::plan::{AttentionScores, DropoutMasks, Kept, ModelShape, Shards};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, calls_of_a_block];

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

/// How often ranks that share a block meet in its forward pass.
fn calls_of_a_block() -> Result<Question> {
    let of = |layers: usize, pass: usize| {
        let shape = ModelShape::gpt2(layers, 64, 8, 65, 64);
        calls(&Shards { shape, tensor: 2, pipeline: 1, sequence: false, rows: 65 })[pass] as f64
    };
    let a_block = |pass: usize| of(2, pass) - of(1, pass);
    let forward = a_block(0);
    Ok(Question::amount(
        ["lab05", "One block: f and g"],
        "Two tensor ranks share a block: attention, and an MLP, each with a matrix that is cut by columns and one that is cut by rows. How \
         many all-reduces does the block's forward pass make?",
        |calls| calls.to_string(),
        forward,
        &[
            (
                forward + a_block(1),
                "That is forward and backward together, or one for each matrix. The second matrix's rows need the columns that the rank \
                 has, so nothing is sent between the two.",
            ),
            (
                forward / 2.0,
                "Attention and the MLP each end in a sum over the ranks, and the second begins with the first one's.",
            ),
            (
                0.0,
                "Each rank has some rows of the second matrix, so its product is only a summand of the result.",
            ),
        ],
        "Each pair of matrices ends with one sum over the ranks, g: one for attention, one for the MLP.",
    ))
}
