//! lab07 · Three axes, one job
//!
//! How do the three axes share one job?
//!
//! Tensor ranks share every layer, pipeline ranks hold different layers, data ranks hold the same
//! layers and take different sequences. `Part` below is one rank's share of all three. Run
//! `cargo run --bin lab07`: eight ranks, two on each axis, train one small GPT. The first check
//! trains with this part, beside the library's trainer.

use anyhow::Result;
use kit::Beside;
use shardlab::comm::Comm;
use shardlab::parallel::pipeline::Stages;
use shardlab::parallel::{Strategy, TensorParallel, Zero, ZeroConfig};
use shardlab::train::Config;

// ANCHOR: heart
/// One rank's part of a model that is divided along three axes.
struct Part {
    layers: TensorParallel,
    stage: Stages,
    zero: Zero,
}

impl Part {
    fn new(world: &Comm, job: &Config, strategy: &Strategy, zero: ZeroConfig) -> Result<Part> {
        // A rank has a place on each axis. Ranks whose places differ on one axis alone are a group:
        // `split` joins ranks that name the same number, and here the places on the other two axes
        // make that number.
        let at = strategy.layout().coordinates(world.rank());
        let color = |a: usize, b: usize| (a * world.size() + b) as u64;
        let tensor = world.split(color(at.pipeline, at.data), at.tensor as i64)?;
        let pipeline = world.split(color(at.data, at.tensor), at.pipeline as i64)?;
        let data = world.split(color(at.pipeline, at.tensor), at.data as i64)?;

        // Tensor ranks cut every matrix: this makes such layers. They do not shard the sequence.
        let layers = TensorParallel::new(tensor).pad_vocabulary_to(strategy.vocabulary_multiple);
        // Pipeline ranks divide the layers that are made of these matrices.
        let stages = strategy.pipeline(job.grad_accum);
        let stage = Stages::new(stages, &pipeline, &job.shape, strategy.partition, &layers)?;
        // Data ranks hold the same slices of the same layers: they average gradients, and with
        // ZeRO-1 divide the optimizer's state.
        let zero = Zero::init(&stage.chunks[0].params, &data, zero, job.seed)?;
        // Where the axes meet: one norm of all gradients, and the token table of the first and the
        // last stage.
        let zero = zero.with_tensor(&layers)?.with_pipeline(&pipeline)?;
        Ok(Part { layers, stage, zero })
    }
}
// ANCHOR_END: heart

/// Trains the first steps with the part above: this rank's share of the mesh. Returns the losses.
fn train_plainly(
    world: &Comm,
    config: &Config,
    strategy: &Strategy,
    zero: ZeroConfig,
    text: &[u32],
    steps: usize,
) -> Result<Vec<f64>> {
    let Part { layers, stage, mut zero } = Part::new(world, config, strategy, zero)?;
    let pipeline = stage.group();
    let stages = strategy.pipeline(config.grad_accum);
    let order = strategy.schedule().order(&stages, pipeline.rank());
    let program = stages.with_messages(pipeline.rank(), &order);
    let shape = [config.batch, config.shape.block, config.shape.embd];
    // One replica, one batch.
    let sampler = config.sampler(strategy.layout().coordinates(world.rank()).data);
    let mut losses = Vec::new();
    for step in 0..steps {
        let draw = |micro| {
            let batch = sampler.batch(text, step, micro);
            let pass = layers.pass(config.pass(step, &batch.sequences), batch.length);
            (batch, pass)
        };
        let micro_batches: Vec<_> = (0..config.grad_accum).map(draw).collect();
        zero.begin()?;
        let ran = stage.step(&program, &micro_batches, shape, &zero)?;
        zero.finish()?; // both ends add up the token table, data ranks average
        zero.step(config.schedule.at(step), config.clip)?;
        let mut loss = [ran.losses.iter().sum::<f64>() / config.grad_accum as f64];
        pipeline.broadcast(&mut loss, pipeline.size() - 1)?; // the last stage has computed it
        losses.push(loss[0]);
    }
    Ok(losses)
}

/// The first losses of a training with the part above, beside those that the library's trainer has
/// computed.
pub fn compare_first_losses(
    world: &Comm,
    config: &Config,
    strategy: &Strategy,
    zero: ZeroConfig,
    text: &[u32],
    library: &[f64],
) -> Result<Beside> {
    let lesson = train_plainly(world, config, strategy, zero, text, library.len())?;
    // Both add in one order, so the bits are the same.
    Ok(Beside::of(world, &lesson, library, 0.0)?)
}
