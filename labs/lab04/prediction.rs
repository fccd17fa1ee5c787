//! What a reader predicts before the run.

use anyhow::Result;
use kit::Question;
use kit::show::significant;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{zero_traffic, zero_volumes};

/// How much more ZeRO-3 sends than data parallelism.
///
/// # Errors
/// None.
pub fn prediction() -> Result<Question> {
    let ranks = 4;
    let sends = |stage: Stage| zero_traffic(stage.number(), 1 << 20, ranks, 4, 1);
    let times = |stage: Stage| sends(stage) / sends(Stage::Ddp);
    let passes = |stage: Stage| zero_volumes(stage.number(), 1).total() as f64;
    Ok(Question::amount(
        ["lab04", "The run"],
        format!(
            "{ranks} ranks train with plain data parallelism, which all-reduces the gradients. With ZeRO-3 each rank holds a quarter of \
             everything, and gathers parameters when it needs them. How many times as many bytes does it then send per step?"
        ),
        |times| format!("{} times", significant(times, 2)),
        times(Stage::Three),
        &[
            (
                times(Stage::Two),
                "That is stages 1 and 2: an all-reduce is a reduction and a gather, and they only gather something else. Stage 3 gathers \
                 for the forward pass and again for the backward pass.",
            ),
            (
                passes(Stage::Three),
                "It is true that stage 3 gathers twice and reduces once. But the all-reduce is two of these passes already.",
            ),
            (
                passes(Stage::Ddp),
                "That would be four passes against two. Stage 3 has three: it keeps no whole parameters, so it need not gather after the \
                 optimizer's step.",
            ),
            (1.0 / ranks as f64, "That is what a rank holds. It has to bring together the rest."),
        ],
        "Two gathers and a reduction, where an all-reduce is one gather and one reduction: three passes over two.",
    )
    .typed(" times", 0.02)
    .shown("3(n-1)/n Ψ"))
}
