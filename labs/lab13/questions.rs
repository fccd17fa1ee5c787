//! What this lab asks before its run, and in the quiz.

use crate::apparatus::{even_copies, even_ranks};
use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::significant;
use kit::{Ask, Question};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, divisor, fullest];

/// How many copies of a token leave its rank.
fn prediction() -> Result<Question> {
    let args = Args::parse_from(["lab13"]);
    let ranks = args.ranks.unwrap_or(4);
    let number = args.experts.experts.unwrap_or(8);
    let top = args.experts.top;
    let copies = even_copies(top, ranks);
    let k = top as f64;
    let e = ranks as f64;
    Ok(Question::amount(
        ["lab13", "The run"],
        format!(
            "{ranks} ranks hold {} of {number} experts each. A router sends each token to {top} of them, and all experts get \
             equally many. How many copies of a token leave its rank, on average?",
            number / ranks
        ),
        |copies| significant(copies, 3),
        copies,
        &[
            (
                k,
                "That would be so if none of a token's experts were on its own rank.",
            ),
            (
                e - 1.0,
                "That is what gathering sends: every token to every other rank, whoever was chosen.",
            ),
            (
                even_ranks(number, top, ranks),
                "That would be so if a token went to each rank only once, even where it has two experts there.",
            ),
            (1.0 / e * k, "Those are the copies that stay: the experts on the token's own rank."),
            (
                k / number as f64,
                "That is the part of the experts that a token uses. The question asks for copies that travel.",
            ),
        ],
        "Of a token's k experts 1/e are on its own rank, so k(1-1/e) copies leave.",
    )
    .typed(" copies", 0.02)
    .shown("k(1-1/e)"))
}

/// Whose tokens an expert's gradient is of.
fn divisor() -> Result<Question> {
    let data = 8;
    let ep = 4;
    let edp = data / ep;
    let tokens: f64 = (1..=data).map(f64::from).sum();
    Ok(Question::amount(
        ["lab13", "Whose gradient, divided by what?"],
        format!(
            "{data} data ranks, of which {ep} neighbours share the experts. The loss is the mean over all {data}. One expert lies on {edp} \
             ranks. Its gradient there is already a sum over the tokens that {ep} ranks have sent. The {edp} ranks add up their sums: \
             {tokens}. What is the expert's gradient?"
        ),
        |gradient| significant(gradient, 3),
        tokens / f64::from(data),
        &[
            (
                tokens / f64::from(edp),
                "That is a mean over the ranks that hold the expert, as for any other parameter: four times too large. The sum is of the \
                 tokens of all eight.",
            ),
            (
                tokens / f64::from(ep),
                "That divides by the ranks that have sent tokens to one of them. The other one's tokens came from four more.",
            ),
            (
                tokens,
                "That is a sum. The loss is a mean over the ranks, so every gradient is.",
            ),
        ],
        "The summands are of the tokens of all 8 ranks, however many ranks have added them up: so 8 divides, as for every other parameter.",
    ))
}

/// What a step waits for.
fn fullest() -> Result<Question> {
    let experts = 8.0;
    let tokens = 1024.0;
    let top = 2.0;
    let most = 512.0;
    Ok(Question::amount(
        ["lab13", "An even load"],
        format!(
            "{experts} ranks hold one of {experts} experts each, and a router sends {tokens} tokens to {top} experts each. The fullest expert gets \
             {most} copies. How many times as long as with an even load do the experts take?"
        ),
        |times| significant(times, 3),
        most / (top * tokens / experts),
        &[
            (
                most / (tokens / experts),
                "Each token has two copies, so on an even load an expert gets 256 and not 128.",
            ),
            (1.0, "All ranks wait in the combine until the fullest expert has computed."),
            (
                most / tokens,
                "That is the share of the tokens that have chosen the expert. On an even load it is a quarter.",
            ),
        ],
        "There are 2,048 copies, 256 for each expert. All wait for the one with 512.",
    ))
}
