//! lab10 · Back to libraries
//!
//! A library divides a model by a few settings: which, and at what cost?
//!
//! `Part` makes a rank's share of a Llama from such settings. The step that follows is the same
//! under every strategy. `cargo run --bin lab10` takes two of them under each, and all must have
//! the losses of the jobs that it measures.

use crate::Benchmark;
use anyhow::Result;
use kit::Beside;
use shardlab::comm::{Comm, Reduce};
use shardlab::mesh::{Axis, Mesh};
use shardlab::model::Llama;
use shardlab::parallel::pipeline::{Pipeline, Schedule, Stages};
use shardlab::parallel::{TensorParallel, Zero};
use std::ops::Range;

// ANCHOR: heart
/// What one rank holds of a job's model.
struct Part {
    mesh: Mesh,
    pipeline: Pipeline,
    model: Stages<Llama>,
    zero: Zero,
}

impl Part {
    /// The settings become a mesh, the mesh gives the rank its layers, and ZeRO divides what
    /// replicas would all hold.
    fn of(job: &Benchmark, comm: &Comm, seed: u64) -> Result<Part> {
        let config = &job.config;
        let shape = &job.model.shape;
        // Tensor ranks x stages hold the model together. All further ranks hold further copies of
        // it: the replicas.
        let mesh = Mesh::new(comm, config.mesh(comm.size())?)?;
        let [replicas, stages, cut] =
            [Axis::Data, Axis::Pipeline, Axis::Tensor].map(|axis| mesh.group(axis));

        // This rank's layers: those of its stage, and of each matrix its part.
        // No sequence parallelism, no padding.
        let tensor = TensorParallel::new(cut.clone());
        let pipeline = Pipeline {
            ranks: stages.size(),
            chunks: 1,
            micro_batches: config.accumulation,
        };
        let declare = |layers: &[Range<usize>]| Ok(Llama::chunks(shape, layers, &tensor)?);
        let model = Stages::of(pipeline, stages, &config.layers(shape)?, declare)?;

        // Replicas hold the same parameters. `zero_stage` says what of their state each of them
        // keeps.
        let divide = job.zero();
        let zero = job.model.begin(&model.chunks[0].params, replicas, divide, seed)?;
        let zero = zero.with_tensor(&tensor)?.with_pipeline(stages)?;
        Ok(Part { mesh, pipeline, model, zero })
    }
}
// ANCHOR_END: heart

/// Takes the first steps of a job on one of its ranks: the same code under every strategy. Returns
/// their losses.
fn train_plainly(comm: &Comm, job: &Benchmark, steps: usize, seed: u64) -> Result<Vec<f64>> {
    let mut part = Part::of(job, comm, seed)?;
    let stages = part.mesh.group(Axis::Pipeline);
    let order = Schedule::OneForwardOneBackward.order(&part.pipeline, stages.rank());
    let program = part.pipeline.with_messages(stages.rank(), &order);
    let micro_batches = job.micro_batches(&part.mesh, job.batch_sizes[0], true)?;
    let sequences = micro_batches[0].0.sequences.len();
    let activations = [sequences, job.seq_len, job.model.shape.embd];
    let mut losses = Vec::new();
    for _ in 0..steps {
        part.zero.begin()?;
        let ran = part.model.step(&program, &micro_batches, activations, &part.zero)?;
        part.zero.finish()?;
        part.zero.step(job.config.lr, job.config.clip)?;
        losses.push(ran.losses.iter().sum::<f64>() / micro_batches.len() as f64);
    }
    // The last stage alone has computed losses, each replica those of its own sequences.
    stages.broadcast(&mut losses, stages.size() - 1)?;
    part.mesh.group(Axis::Data).all_reduce(&mut losses, Reduce::Mean)?;
    Ok(losses)
}

/// Steps that [`compare_losses`] takes. The second one sees what the optimizer did.
const FIRST_STEPS: usize = 2;

/// Takes a job's first steps on one of its ranks. Compares their losses with those of the benchmark
/// of this job, which has code of its own.
///
/// # Errors
/// If the settings do not divide the model or the batch, or ranks cannot reach each other.
pub fn compare_losses(comm: &Comm, job: &Benchmark, seed: u64, measured: &[f64]) -> Result<Beside> {
    let losses = train_plainly(comm, job, FIRST_STEPS, seed)?;
    let measured: Vec<f64> = measured.iter().take(FIRST_STEPS).copied().collect();
    Ok(Beside::of(comm, &losses, &measured, 0.0)?)
}
