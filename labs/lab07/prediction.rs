//! What a reader predicts before the run.

use anyhow::{Context, Result};
use kit::Question;
use shardlab::mesh::{Axis, Coordinates, Layout, Order};

/// With which rank a rank averages its gradients.
///
/// # Errors
/// If an axis has one rank alone.
pub fn prediction() -> Result<Question> {
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
