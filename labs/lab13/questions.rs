//! What this lab asks before its run, and in the quiz.

use crate::apparatus::{even_copies, even_ranks};
use crate::flags::Args;
use anyhow::Result;
use clap::Parser;
use kit::show::significant;
use kit::{Ask, Question};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction];

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
