//! Labs 05 to 07: one layer on many ranks, pipelines, and the mesh of all axes.

use super::Question;
use anyhow::{Result, ensure};
use kit::show::{percent, significant};
use planner::model;
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use shardlab::parallel::pipeline::{Pipeline, Schedule, Simulated, Times, simulate};
use shardlab::plan::{AttentionScores, DropoutMasks, Kept};

pub fn activations_of_tensor_ranks() -> Result<Question> {
    let tensor = 8;
    let shape = model("gpt3-175b")?;
    let width = shape.embd as f64;
    let kept = Kept::of(&shape, 2.0, AttentionScores::None, DropoutMasks::Kept);
    let one = kept.on_a_rank(1, 1);
    Ok(Question::amount(
        ["lab05", "Sequence parallelism"],
        format!(
            "{tensor} tensor ranks share each layer of GPT-3, with FlashAttention and without sequence parallelism. Of the activations \
             that a single rank would keep for a layer, what part does each of them keep?"
        ),
        percent,
        kept.on_a_rank(tensor, 1) / one,
        &[
            (
                kept.on_a_rank(tensor, tensor) / one,
                "That is an equal part of everything, as with sequence parallelism. Without it tensor ranks share only what lies inside \
                 attention and the MLP: norms and dropout run on whole copies.",
            ),
            (
                kept.stream / one,
                "That is only what each rank has whole, the inputs of norms and matrices and dropout's masks. It also keeps its part of the rest.",
            ),
            (
                1.0,
                "That would be all of it. Tensor ranks divide the heads and the MLP's inner width.",
            ),
        ],
        format!(
            "A layer keeps {} bytes for each number of its input. {} of them belong to the heads and the MLP's inner width, and are divided. \
             The other {}, inputs of norms and matrices and dropout's masks, are whole on every rank.",
            one / width,
            kept.divided / width,
            kept.stream / width
        ),
    ))
}

/// A step of a pipeline, whose backward passes take twice as long as its forward passes.
fn step(schedule: Schedule, ranks: usize, micro_batches: usize) -> Result<Simulated> {
    let pipeline = Pipeline { ranks, chunks: 1, micro_batches };
    let times = Times { forward: 1.0, backward: 2.0, weights: 0.0, message: 0.0 };
    Ok(simulate(&pipeline, &schedule.orders(&pipeline)?, &times)?)
}

pub fn bubble() -> Result<Question> {
    let ranks = 4;
    let micro_batches = 8;
    let of = |ranks, micro_batches| step(Schedule::OneForwardOneBackward, ranks, micro_batches);
    let right = of(ranks, micro_batches)?;
    Ok(Question::amount(
        ["lab06", "The idea"],
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

pub fn who_averages() -> Result<Question> {
    let asked = 5;
    let sizes = Coordinates { data: 2, pipeline: 4, tensor: 2 };
    let group = |order: Order, axis: Axis| {
        let layout = Layout { sizes, order };
        let others = layout.group(asked, axis).into_iter();
        let others: Vec<String> =
            others.filter(|&rank| rank != asked).map(|rank| rank.to_string()).collect();
        let ranks = if others.len() == 1 { "rank" } else { "ranks" };
        format!("{ranks} {}", others.join(", "))
    };
    let megatron = Order::PipelineSlowest;
    Ok(Question::words(
        ["lab07", "The idea"],
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

pub fn two_tables() -> Result<Question> {
    let stages = 4;
    let last = stages - 1;
    let (value, lr) = (10.0, 0.1);
    // The two parts of one number's gradient: through the embedding on the first stage, and through
    // the head on the last.
    let part = |stage: usize| match stage {
        0 => 2.0,
        stage if stage == last => 6.0,
        _ => 0.0,
    };
    // The number on the first and on the last stage after a step, if this is what the stages do
    // with its gradient.
    let after = |change: fn(&Comm, &mut [f32]) -> shardlab::comm::Result<()>| -> Result<[f32; 2]> {
        let values = launch::run(stages, |comm| {
            let mut gradient = [part(comm.rank())];
            change(&comm, &mut gradient)?;
            Ok(value - lr * gradient[0])
        })?;
        Ok([values[0], values[last]])
    };
    let [first, second] = after(|_, _| Ok(()))?;
    let [right, other] = after(|comm, gradient| comm.all_reduce(gradient, Reduce::Sum))?;
    ensure!(right == other && first != second, "the two copies");
    let [sent, _] = after(|comm, gradient| comm.broadcast(gradient, 0))?;
    let shown = |value: f32| significant(f64::from(value), 2);
    Ok(Question::words(
        ["lab07", "What goes wrong"],
        format!(
            "A pipeline has {stages} stages. Stages 0 and {last} hold a copy of the token table, and both begin with {value} in one place. \
             The first loss is right. After one step of SGD the place has {} on stage 0, {} on stage {last}, and {} on one rank that \
             trains the same model. All other weights are right. What is missing?",
            shown(first),
            shown(second),
            shown(right)
        ),
        "the sum of the table's two gradients, before the optimizer's step",
        &[
            (
                "a broadcast of stage 0's table before the first step".into(),
                "The copies began equal, or the first loss would be wrong already.",
            ),
            (
                format!("a broadcast of stage 0's table to stage {last} after each step"),
                &format!(
                    "Then both would have {}. Stage {last}'s part of the gradient would be lost, the one through the head.",
                    shown(sent)
                ),
            ),
            (
                "the average of gradients over the data ranks".into(),
                "That joins ranks that hold the same stage and have different data. These two have the same data and different stages.",
            ),
        ],
        format!(
            "Each stage has one part of the gradient, through the embedding or through the head. With their sum both copies go to {}, and \
             stay equal. The loss falls without it, too: only comparing the copies shows it.",
            shown(right)
        ),
    ))
}
