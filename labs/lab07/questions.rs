//! What this lab asks before its run, and in the quiz.

use anyhow::{Context, Result, ensure};
use kit::show::significant;
use kit::{Ask, Question};
use shardlab::comm::{Comm, Reduce};
use shardlab::launch;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};

/// The first is asked before the run.
pub const QUESTIONS: &[Ask] = &[prediction, two_tables];

/// With which rank a rank averages its gradients.
fn prediction() -> Result<Question> {
    let asked = 1;
    let sizes = Coordinates { data: 2, pipeline: 2, tensor: 2 };
    let layout = Layout { sizes, order: Order::PipelineSlowest };
    let partner = |axis: Axis| {
        let other = layout.group(asked, axis).into_iter().find(|&rank| rank != asked);
        Ok::<_, anyhow::Error>(other.context("each axis has two ranks")? as f64)
    };
    let data = partner(Axis::Data)?;
    Ok(Question::amount(
        ["lab07", "The run"],
        format!(
            "{} ranks form {} tensor x {} data x {} pipeline ranks. Tensor ranks are nearest: ranks 0 and 1 share their layers. Data ranks \
             come next, and pipeline ranks are farthest. With which rank does rank {asked} average its gradients?",
            sizes.data * sizes.pipeline * sizes.tensor,
            sizes.tensor,
            sizes.data,
            sizes.pipeline
        ),
        |rank| format!("rank {rank}"),
        data,
        &[
            (
                partner(Axis::Tensor)?,
                "That is its tensor rank, which holds the other half of the same layers: its gradients are of other parameters.",
            ),
            (
                partner(Axis::Pipeline)?,
                "That is its pipeline rank, which holds other layers. With data ranks farthest, as picotron has them, it would be right.",
            ),
            (
                asked as f64 + 1.0,
                "That is the next number. It is a data rank of rank 0, and holds the other half of each layer.",
            ),
        ],
        "A data rank holds the same part of the same layers. One step along the data axis is as many ranks as there are tensor ranks: two.",
    )
    .typed("", 0.0)
    .shown(format!("[{asked} {data}]")))
}

/// What is missing where the two copies of a tied table differ after a step.
fn two_tables() -> Result<Question> {
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
                "a broadcast of stage 0's table before the first step",
                "The copies began equal, or the first loss would be wrong already.",
            ),
            (
                &format!("a broadcast of stage 0's table to stage {last} after each step"),
                &format!(
                    "Then both would have {}. Stage {last}'s part of the gradient would be lost, the one through the head.",
                    shown(sent)
                ),
            ),
            (
                "the average of gradients over the data ranks",
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
