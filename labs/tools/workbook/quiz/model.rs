//! Labs 05 to 07: one layer on many ranks, pipelines, and the mesh of all axes.

use super::Question;
use anyhow::Result;
use kit::show::percent;
use lab11::planner::model;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Simulated, Times, simulate};
use shardlab::plan::Kept;

pub fn activations_of_tensor_ranks() -> Result<Question> {
    let tensor = 8;
    let shape = model("gpt3-175b")?;
    let channels = shape.embd as f64;
    let kept = Kept::of(&shape, 2.0, true, true);
    let one = kept.on_a_rank(1, 1);
    Ok(Question::amount(
        "lab05",
        format!(
            "{tensor} tensor ranks share each layer of GPT-3, with FlashAttention and without sequence parallelism. Of the activations \
             that one rank alone would keep for a layer, what part does each of them keep?"
        ),
        percent,
        kept.on_a_rank(tensor, 1) / one,
        &[
            (
                kept.on_a_rank(tensor, tensor) / one,
                "That is an equal part of everything, as with sequence parallelism. Tensor ranks alone do not share the stream between \
                 the matrices: norms and dropout run on whole copies.",
            ),
            (
                kept.stream / one,
                "That is the stream alone. Besides, each rank keeps its part of what lies between two matrices.",
            ),
            (
                1.0,
                "That is one rank alone. Tensor ranks divide the heads and the MLP's inner width.",
            ),
        ],
        format!(
            "Of {} bytes for each token and channel, {} are divided among the ranks, and the stream's {} stay whole.",
            one / channels,
            kept.divided / channels,
            kept.stream / channels
        ),
    ))
}

/// A step of a pipeline, whose backward passes take twice as long as its forward passes.
fn step(schedule: Schedule, ranks: usize, micro_batches: usize) -> Result<Simulated> {
    let pipeline = Pipeline {
        ranks,
        chunks: 1,
        micro_batches,
    };
    let times = Times {
        forward: 1.0,
        backward: 2.0,
        weights: 0.0,
        message: 0.0,
    };
    Ok(simulate(&pipeline, &schedule.orders(&pipeline)?, &times)?)
}

pub fn bubble() -> Result<Question> {
    let ranks = 4;
    let micro_batches = 8;
    let of = |ranks, micro_batches| step(Schedule::OneForwardOneBackward, ranks, micro_batches);
    let right = of(ranks, micro_batches)?;
    Ok(Question::amount(
        "lab06",
        format!(
            "A pipeline has {ranks} stages and {micro_batches} micro-batches per step, under 1F1B, and messages cost nothing. For \
             what part of a step is a rank idle?"
        ),
        percent,
        right.bubble(),
        &[
            (
                right.bubble_to_work(),
                "That is idle time in proportion to the work. Of the whole step, which has both, it is less.",
            ),
            (
                of(ranks + 1, micro_batches)?.bubble(),
                "That would be one stage more: a rank waits for the others, and not for itself.",
            ),
            (
                of(ranks, 1)?.bubble(),
                "That is so with one micro-batch. Further ones keep all stages busy at the same time.",
            ),
        ],
        format!(
            "A rank waits for {0} others, at the beginning or at the end, and works on {micro_batches} micro-batches: \
             {0}/({micro_batches}+{0}).",
            ranks - 1
        ),
    ))
}

pub fn micro_batches_in_flight() -> Result<Question> {
    let ranks = 4;
    let micro_batches = 16;
    let schedule = Schedule::OneForwardOneBackward;
    let kept = step(schedule, ranks, micro_batches)?.peaks;
    let gpipe = step(Schedule::GPipe, ranks, micro_batches)?.peaks;
    let pipeline = Pipeline {
        ranks,
        chunks: 1,
        micro_batches,
    };
    Ok(Question::amount(
        "lab06",
        format!(
            "A pipeline of {ranks} stages gets {micro_batches} micro-batches per step, under 1F1B. The activations of how many of them \
             does the first rank hold at most?"
        ),
        |count| count.to_string(),
        kept[0] as f64,
        &[
            (gpipe[0] as f64, "That is GPipe, which runs all forward passes first."),
            (
                schedule.warm_up(&pipeline, 0) as f64,
                "Those are its forward passes before the first pair. The pair begins with one more.",
            ),
            (kept[ranks - 1] as f64, "That is the last rank, which runs each backward pass at once."),
        ],
        "As many as there are stages, whatever the number of micro-batches: then the first gradient is back, and each backward pass \
         frees what the next forward pass takes.",
    )
    .typed())
}

pub fn who_averages() -> Result<Question> {
    let asked = 5;
    let sizes = Coordinates {
        data: 2,
        pipeline: 4,
        tensor: 2,
    };
    let group = |order: Order, axis: Axis| {
        let layout = Layout { sizes, order };
        let others = layout.group(asked, axis).into_iter();
        let others: Vec<String> = others
            .filter(|&rank| rank != asked)
            .map(|rank| rank.to_string())
            .collect();
        let ranks = if others.len() == 1 { "rank" } else { "ranks" };
        format!("{ranks} {}", others.join(", "))
    };
    let megatron = Order::PipelineSlowest;
    Ok(Question::words(
        "lab07",
        format!(
            "{} ranks form a mesh in Megatron-LM's order: tensor ranks are nearest, {} of them, then {} data ranks, then {} pipeline \
             stages. With whom does rank {asked} average its gradients?",
            sizes.data * sizes.pipeline * sizes.tensor,
            sizes.tensor,
            sizes.data,
            sizes.pipeline
        ),
        group(megatron, Axis::Data),
        &[
            (
                group(megatron, Axis::Tensor),
                "That is its tensor rank. It holds another part of the same layers, so its gradients are of other parameters.",
            ),
            (
                group(megatron, Axis::Pipeline),
                "Those are its pipeline group, which holds other layers.",
            ),
            (
                group(Order::DataSlowest, Axis::Data),
                "That is so where data ranks are farthest, as in picotron and ezpz.",
            ),
        ],
        format!(
            "Data ranks have the same stage and the same tensor coordinate. One step along the data axis is as many ranks as there \
             are tensor ranks, {}.",
            sizes.tensor
        ),
    ))
}
