//! What the scripts of interactive figures must compute.

use super::predictions::typed_numbers;
use super::{bad_batch, exposed, memory, mesh, plans, schedules};
use anyhow::{Context, Result};
use itertools::iproduct;
use kit::show::{bytes_binary, bytes_decimal, seconds};
use labs::lab01::formula;
use serde_json::{Value, json};
use shardlab::comm::Link;
use shardlab::comm::algorithms::{Algorithm, Collective, Task};
use shardlab::plan::{BytesEach, Network, simulate, zero_memory};

/// The library's numbers behind the interactive figures, on a grid of what a reader can choose.
///
/// # Errors
///
/// Where the library refuses to compute one.
pub fn numbers() -> Result<Value> {
    let links = Network::presets().map(|network| network.between);
    let ranks = [2usize, 3, 4, 5, 7, 8, 12, 64, 96, 768, 4096];
    let algorithms = Collective::AllReduce.algorithms();
    let cost = |(link, ranks, times, &algorithm): (Link, usize, usize, &Algorithm)| {
        // Each message is busy for its latency, too, as on a network card.
        let network = Network { pipelined: false, ..Network::uniform(link) };
        let Link { latency, bandwidth } = link;
        // All chunks have the same length.
        let len = times * ranks * ranks.next_power_of_two();
        let task = Task::new(Collective::AllReduce, algorithm, ranks, len, 4, 0)?;
        let took = simulate(&task, 4, &network);
        let size = 4 * len;
        let rounds = formula(&task, 4).context("every all-reduce has a formula")?.rounds;
        Ok(json!({
            "algorithm": algorithm.name(), "ranks": ranks, "size": size, "latency": latency,
            "bandwidth": bandwidth, "rounds": rounds, "seconds": took,
            "words": [seconds(took), bytes_binary(size as f64)],
        }))
    };
    let cost: Vec<Value> =
        iproduct!(links, ranks, [1, 100], algorithms).map(cost).collect::<Result<_>>()?;
    let precisions = [("f32", BytesEach::F32), ("mixed", BytesEach::MIXED)];
    let models = [1, 100_000_001, 7_500_000_000, 1_000_000_000_000];
    let stage = |(stage, (precision, each), parameters, ranks)| {
        let bytes = zero_memory(stage, parameters, ranks, each);
        json!({
            "stage": stage, "precision": precision, "parameters": parameters, "ranks": ranks,
            "bytes": bytes, "words": bytes.map(|bytes| bytes_decimal(bytes as f64)),
        })
    };
    let stages = iproduct!(0..4, precisions, models, [1, 2, 3, 64, 1000]).map(stage);
    let rings: Vec<_> = (2..=8).map(super::figures::ring).collect();
    Ok(json!({
        "cost": cost, "stages": stages.collect::<Vec<_>>(), "ring": rings, "schedule": schedules::numbers()?,
        "exposed": exposed::numbers(), "mesh": mesh::numbers(), "memory": memory::numbers()?,
        "steps": plans::steps()?, "bad-batch": bad_batch::numbers()?, "typed": typed_numbers(),
    }))
}
