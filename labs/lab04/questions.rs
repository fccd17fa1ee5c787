//! What this lab asks before its run, and in the quiz.

use anyhow::Result;
use kit::show::{bytes_decimal, significant};
use kit::{Ask, Question};
use shardlab::optim::NewtonSchulz;
use shardlab::parallel::zero::Stage;
use shardlab::plan::{BytesEach, zero_memory, zero_traffic, zero_volumes};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, state_of_a_stage, tokens_of_a_muon_step];

/// How much more ZeRO-3 sends than data parallelism.
fn prediction() -> Result<Question> {
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

/// What a rank holds under ZeRO-1.
fn state_of_a_stage() -> Result<Question> {
    let parameters = 13_000_000_000;
    let ranks = 16;
    let held = |stage| -> f64 {
        let bytes = zero_memory(stage, parameters, ranks, BytesEach::MIXED);
        bytes.iter().sum::<u64>() as f64
    };
    Ok(Question::amount(
        ["lab04", "From 120 GB to 1.9 GB"],
        format!(
            "{} billion parameters train in mixed precision: 2 bytes for each parameter, 2 for its gradient and 12 for the \
             optimizer. How much of this does each of {ranks} ranks hold under ZeRO-1?",
            parameters / 1_000_000_000
        ),
        bytes_decimal,
        held(1),
        &[
            (held(0), "Nothing is shared there: that is what each rank of DDP holds."),
            (held(2), "There ranks share the gradients as well: ZeRO-2."),
            (held(3), "There ranks share all 16 bytes, also the parameters: ZeRO-3."),
        ],
        format!(
            "Stage 1 shares only the optimizer's bytes: 2 + 2 + 12/{ranks} for each parameter."
        ),
    ))
}

/// How many tokens' passes cost as much as Muon's step.
fn tokens_of_a_muon_step() -> Result<Question> {
    let side = 128.0;
    let steps = NewtonSchulz::Jordan.coefficients().count() as f64;
    let square = side * side;
    // Three products of square matrices.
    let newton_schulz = 3.0 * 2.0 * side * square;
    let tokens = |passes: f64| steps * newton_schulz / (passes * 2.0 * square);
    Ok(Question::amount(
        ["lab04", "Does it help?"],
        format!(
            "A layer's matrix has {side} rows and {side} columns. Each of Muon's {steps} Newton-Schulz steps multiplies three pairs of \
             matrices of that size. For how many tokens do this layer's forward and backward pass take as many FLOPs?"
        ),
        |tokens| format!("{tokens} tokens"),
        tokens(3.0),
        &[
            (tokens(3.0) / steps, "That is one Newton-Schulz step. Muon takes five."),
            (
                tokens(1.0),
                "That is the forward pass alone. The backward pass takes twice as many: gradients of the input, and of the matrix.",
            ),
            (
                tokens(3.0) / 3.0,
                "That is one product in each step: X Xt. Its square and the product with X come after it.",
            ),
        ],
        "A token takes three products of a vector and the matrix, and a Newton-Schulz step three of two matrices, each as much as 128 \
         vectors: 5 times 128.",
    )
    .on_page("muon"))
}
