//! lab11 · Deciding on a strategy
//!
//! Which strategy trains this model fastest on these devices, and at what cost?
//!
//! A planner in its plainest form: [`bytes`] of a plan, [`seconds`] of a plan, and [`plans`] tries
//! all. `cargo run --bin lab11` decides for a Llama of 70 billion parameters on 512 H100: its row
//! `simplest` shows the choice of this file, and what the whole planner says of it.

use crate::planner::{Stage, Strategy, TrainingJob};
use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Link};
use shardlab::plan::Portion;

// ANCHOR: heart
/// A plan: ranks along three axes. With ZeRO-1, data ranks divide the optimizer's state.
#[derive(Clone, Copy)]
pub struct Degrees {
    pub data: usize,
    pub tensor: usize,
    pub pipeline: usize,
}

/// Bytes of a rank's state: for each parameter that it holds a weight and a gradient, and its part
/// of the optimizer's numbers.
pub fn bytes(job: &TrainingJob, plan: Degrees) -> f64 {
    let held = job.model.parameters() as f64 / (plan.tensor * plan.pipeline) as f64;
    let optimizer = job.bytes.optimizer as f64 / plan.data as f64;
    held * (job.bytes.parameter as f64 + job.bytes.gradient as f64 + optimizer)
}

/// Seconds of a step: all tokens' products on all devices, the pipeline's bubble, and the way of
/// gradients, weights and activations through the network.
pub fn seconds(job: &TrainingJob, plan: Degrees) -> f64 {
    let device = &job.cluster.device;
    let tokens = (job.batch * job.model.block) as f64;
    let flops = tokens * job.model.training_flops_per_token() as f64;
    let products = flops / (job.devices as f64 * device.peak * device.matmul);
    let micro_batches = job.batch / plan.data; // of one sequence
    let bubble = (plan.pipeline - 1) as f64 / micro_batches as f64;

    let held = job.model.parameters() as f64 / (plan.tensor * plan.pipeline) as f64;
    let part = (plan.data - 1) as f64 / plan.data as f64;
    // Gradients are scattered, weights gathered.
    let each = job.bytes.gradient + job.bytes.parameter;
    let of_data = part * held * each as f64 / link(job, plan.tensor * plan.data).bandwidth;

    let layers = (job.model.layers / plan.pipeline) as f64;
    let width = (job.model.embd * job.bytes.parameter as usize) as f64;
    let part = (plan.tensor - 1) as f64 / plan.tensor as f64;
    let all_reduce = 2.0 * part * tokens / plan.data as f64 * width;
    // Two forward, two backward.
    let of_tensors = 4.0 * layers * all_reduce / link(job, plan.tensor).bandwidth;
    products * (1.0 + bubble) + of_data + of_tensors
}
// ANCHOR_END: heart

/// The network between so many neighbouring ranks. Tensor ranks are neighbours, and data ranks are
/// the next nearest.
fn link(job: &TrainingJob, ranks: usize) -> Link {
    let network = &job.cluster.network;
    if ranks <= network.ranks_per_node {
        network.within
    } else {
        network.between
    }
}

/// Every way to divide the devices that divides the model and the batch and whose state fits; the
/// fastest first.
pub fn plans(job: &TrainingJob) -> Vec<(f64, Degrees)> {
    let mut found = Vec::new();
    for tensor in (1..=job.devices).filter(|n| job.devices.is_multiple_of(*n)) {
        let rest = job.devices / tensor;
        for pipeline in (1..=rest).filter(|n| rest.is_multiple_of(*n)) {
            let data = rest / pipeline;
            let plan = Degrees { data, tensor, pipeline };
            let divides = job.model.heads.is_multiple_of(tensor)
                && job.model.layers.is_multiple_of(pipeline)
                && job.batch.is_multiple_of(data);
            if divides && bytes(job, plan) <= job.cluster.device.memory {
                found.push((seconds(job, plan), plan));
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

/// The bytes of state of all plans without a pipeline, as above and by the planner, as parts of the
/// planner's. With a pipeline the planner counts what the first or last stage holds, not the mean
/// of all stages.
pub fn compare_bytes(job: &TrainingJob) -> Result<Beside> {
    let model = &job.model;
    let whole = model.portion(&(0..model.layers)); // first and last stage in one
    let held = |tensor| model.parameters_on_a_rank(&Portion { tensor, ..whole });
    let on_one = held(1);
    let mut lesson = Vec::new();
    let mut library = Vec::new();
    let mut most = 1;
    let mut padding = 0; // rows of a token table
    let mut least = f64::INFINITY;
    for tensor in (1..=job.devices).filter(|n| job.devices.is_multiple_of(*n)) {
        if job.model.heads.is_multiple_of(tensor) {
            let data = job.devices / tensor;
            let strategy = Strategy { data, tensor, zero: Stage::One, ..Strategy::SINGLE };
            let load = job.load_of(&strategy, 0);
            let planned = load.state();
            let plan = Degrees { data, tensor, pipeline: 1 };
            lesson.push(bytes(job, plan) / planned);
            library.push(1.0);
            most = most.max(tensor);
            let rows = model.vocabulary.next_multiple_of(tensor);
            padding = padding.max(rows - model.vocabulary);
            least = least.min(planned);
        }
    }
    // Of t tensor ranks each has a copy of what they do not divide, C parameters such as norms.
    // Above these are divided, too: so the bytes are at most C (t-1) / parameters too few, and
    // without the rows that make a token table even. And the planner rounds a rank's part up to
    // whole parameters.
    let on_two = held(2);
    let copied = 2.0 * on_two - on_one;
    let tables = if model.tied() { 1 } else { 2 };
    let lacks = copied * (most - 1) as f64 + (tables * padding * model.embd) as f64;
    let bound = lacks / on_one + job.bytes.optimizer as f64 / least;
    Ok(Beside::of(&Comm::alone(), &lesson, &library, bound)?)
}
