//! The explorer of meshes: a rank's groups and nodes, what it holds, and the bytes that it sends on
//! each axis.
//!
//! What it holds and sends are cases for the figure's script (`book/figures/mesh.js`). The script
//! finds groups and nodes itself, and book/browse.py compares both.

use super::cases::json_of;
use super::plans::cluster;
use anyhow::Result;
use itertools::iproduct;
use planner::{Degrees, Stage, Strategy, TrainingJob, model};
use serde_json::{Value, json};
use shardlab::mesh::{Axis, Coordinates, Layout, Order};
use shardlab::plan::Portion;
use std::collections::BTreeSet;

/// The axes as the figure shows them.
const AXES: [Axis; 3] = [Axis::Tensor, Axis::Data, Axis::Pipeline];

/// lab11's job on so many devices, with the batch of the whole job, one sequence in a micro-batch,
/// and ZeRO-1.
fn job(sizes: Coordinates) -> Result<(TrainingJob, Strategy)> {
    let cluster = cluster("h100-80g", "dgx-h100")?;
    let shape = model("llama-3-70b")?;
    let strategy = Strategy {
        data: sizes.data,
        tensor: sizes.tensor,
        pipeline: sizes.pipeline,
        zero: Stage::One,
        ..Strategy::SINGLE
    };
    let job = TrainingJob {
        batch: TrainingJob::usual_batch(&shape, 512),
        ..TrainingJob::new(shape, cluster, strategy.ranks())
    };
    Ok((job, strategy))
}

/// Parameters on a rank of a stage.
fn held(job: &TrainingJob, strategy: &Strategy, stage: usize) -> f64 {
    job.model.parameters_on_a_rank(&Portion {
        layers: strategy.layers_of(job.model.layers, stage),
        dense: 0, // no model here has experts
        first: stage == 0,
        last: stage + 1 == strategy.pipeline,
        tensor: strategy.tensor,
        rows: job.model.vocabulary,
    })
}

/// The bytes that a rank of a stage sends per step, axis by axis. The planner has those of the rank
/// that sends most: here a stage at an end sends to one neighbour, and one that is not has no
/// all-reduce of the ends.
fn sent(job: &TrainingJob, strategy: &Strategy, stage: usize) -> [f64; 3] {
    let [tensor, pipeline, data] = job.traffic(strategy).map(|axis| axis.bytes);
    let p = strategy.pipeline;
    let layers = strategy.layers_of(job.model.layers, stage) as f64;
    let ends = [stage == 0, stage + 1 == p];
    let here = ends.iter().filter(|&&end| end).count() as f64;
    let most = if p == 1 { 2.0 } else { 1.0 };
    let neighbours = 2.0 - here;
    let held_most = (0..p).map(|stage| held(job, strategy, stage)).fold(0.0, f64::max);
    [
        tensor * (4.0 * layers + here) / (4.0 * layers + most),
        data * held(job, strategy, stage) / held_most,
        pipeline * neighbours / 2.0,
    ]
}

/// What ranks hold and send for all degrees that a reader can choose, as JSON with one case per
/// line. `stages` has the first stage, one in the middle and the last, as far as there are such:
/// parameters, bytes of their state, and the bytes that a rank sends on each axis.
pub(super) fn cases() -> Result<String> {
    let case = |(tensor, data, pipeline)| {
        let (job, strategy) = job(Coordinates { data, pipeline, tensor })?;
        let state = job.bytes.on_a_rank(data);
        let of = |stage: usize| {
            let held = held(&job, &strategy, stage);
            json!([held, held * state, sent(&job, &strategy, stage)])
        };
        let stages = BTreeSet::from([0, pipeline / 2, pipeline - 1]);
        Ok(json!({
            "tensor": tensor, "data": data, "pipeline": pipeline,
            "layers": strategy.layers_of(job.model.layers, 0),
            "stages": stages.into_iter().map(of).collect::<Vec<_>>(),
        }))
    };
    let degrees = iproduct!([1, 2, 4, 8], [1, 2, 3, 4, 6, 8, 12, 16], [1, 2, 4, 8]);
    Ok(json_of([("cases", degrees.map(case).collect::<Result<_>>()?)]))
}

/// A rank's place on each axis, its groups, and on how many nodes each of them is.
fn json(layout: &Layout, order: &str, node: usize, rank: usize) -> Value {
    let sizes = layout.sizes;
    let at = layout.coordinates(rank);
    let groups = AXES.map(|axis| layout.group(rank, axis));
    let nodes = groups.each_ref().map(|group| {
        let nodes: BTreeSet<usize> = group.iter().map(|rank| rank / node).collect();
        nodes.len()
    });
    json!({
        "data": sizes.data, "pipeline": sizes.pipeline, "tensor": sizes.tensor, "order": order, "node": node, "rank": rank,
        "at": AXES.map(|axis| at.along(axis)), "groups": groups, "nodes": nodes,
    })
}

/// The library's groups for some of the ranks that a reader can choose.
pub(super) fn numbers() -> Vec<Value> {
    let mut all = Vec::new();
    let orders = [
        ("pipeline farthest", Order::PipelineSlowest),
        ("data farthest", Order::DataSlowest),
    ];
    let nodes = [(1, 4), (2, 4), (2, 6), (8, 8), (8, 12)];
    for (data, pipeline, (tensor, node), (words, order)) in
        iproduct!([1, 2, 3, 16], [1, 2, 4, 8], nodes, orders)
    {
        let layout = Layout { sizes: Coordinates { data, pipeline, tensor }, order };
        let count = layout.ranks();
        let ranks = BTreeSet::from([0, count / 3, count / 2, count - 1]);
        all.extend(ranks.into_iter().map(|rank| json(&layout, words, node, rank)));
    }
    all
}
