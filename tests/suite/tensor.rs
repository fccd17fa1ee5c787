//! Data parallelism and every stage of ZeRO over the data groups of a mesh, with a model that
//! tensor ranks share.

use super::trained::{config, loss_rounding, train_large_batch};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::largest_difference;
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use shardlab::model::Gpt;
use shardlab::parallel::TensorParallel;
use shardlab::parallel::zero::{Stage, Zero, ZeroConfig};
use shardlab::tensor::Precision;
use shardlab::train::Config;
use std::collections::HashMap;

/// A short training of a mesh: the loss of every step, the gradient norms, and this rank's
/// parameters.
#[derive(PartialEq)]
struct Trained {
    losses: Vec<f64>,
    norms: Vec<f64>,
    values: Vec<(String, Vec<f32>)>,
}

/// Trains in every stage on a mesh whose tensor groups have `tensor` ranks, and compares with one
/// rank that takes all data as one batch. `same_order`: whether this transport adds in rank order,
/// so that all stages agree to the bit.
pub fn a_mesh_trains_what_one_rank_trains(
    world: &Comm,
    tensor: usize,
    same_order: bool,
) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    let sizes = Coordinates { data: world.size() / tensor, pipeline: 1, tensor };
    let mesh = Mesh::new(world, Layout { sizes, order: Order::default() })?;
    for precision in [Precision::F32, Precision::Bf16] {
        let (config, corpus) = config(sizes.data, |config| {
            (config.dropout, config.clip, config.shape.heads) = (0.1, 0.5, 4);
            config.precision = precision;
        });
        trains_what_one_rank_trains(world, &mesh, &config, &corpus.train, same_order)?;
    }
    Ok(())
}

fn trains_what_one_rank_trains(
    world: &Comm,
    mesh: &Mesh,
    config: &Config,
    text: &[u32],
    same_order: bool,
) -> anyhow::Result<()> {
    const STEPS: usize = 4;
    let serial = train_large_batch(config, text, STEPS)?;
    let whole = Gpt::new(&config.shape)?;
    let specs = whole.params.specs();
    let expected: HashMap<&str, &[f32]> = specs
        .iter()
        .map(|spec| (spec.name.as_str(), &serial.values[spec.range()]))
        .collect();
    for sequence in [false, true] {
        let mut first: Option<Trained> = None;
        for stage in Stage::ALL {
            let Config { precision, .. } = *config;
            let sizes = mesh.layout.sizes;
            let what = format!("{sizes:?}, {precision:?}, sequence parallel {sequence}, {stage:?}");
            let zero = config.zero(stage);
            let trained = train(mesh, config, text, sequence, zero, STEPS, &expected)?;
            let apart = largest_difference(&trained.losses, &serial.losses);
            let most = match precision {
                Precision::F32 => loss_rounding(config.tokens_per_step()),
                // Ranks add numbers of 8 bits in another order.
                Precision::Bf16 => 1e-3 * serial.losses[0],
            };
            assert!(apart < most, "{what}: {:?} against {:?}", trained.losses, serial.losses);
            // Ranks that clip by different norms would drift apart.
            let mut most = trained.norms.clone();
            world.all_reduce(&mut most, Reduce::Max)?;
            assert_eq!(most, trained.norms, "{what}");
            match &first {
                // All stages clip, and take the same steps.
                Some(first) if same_order => assert!(trained == *first, "{what}"),
                _ => first = Some(trained),
            }
        }
    }
    Ok(())
}

fn train(
    mesh: &Mesh,
    config: &Config,
    text: &[u32],
    sequence: bool,
    zero: ZeroConfig,
    steps: usize,
    expected: &HashMap<&str, &[f32]>,
) -> anyhow::Result<Trained> {
    let mut parallel = TensorParallel::new(mesh.group(Axis::Tensor).clone());
    if sequence {
        parallel = parallel.sequence_parallel();
    }
    let gpt = Gpt::build(&config.shape, &parallel)?;
    let data = mesh.group(Axis::Data);
    let mut zero = Zero::init(&gpt.params, data, zero, config.seed)?.with_tensor(&parallel)?;
    let mut losses = Vec::new();
    let mut norms = Vec::new();
    for step in 0..steps {
        zero.begin()?;
        let batch = config.sampler(mesh.at.data).batch(text, step, 0);
        let loss =
            gpt.loss(&batch, &parallel.pass(config.pass(step, &batch.sequences), batch.length))?;
        loss.backward()?;
        zero.finish()?;
        let mut mean = [f64::from(loss.to_scalar::<f32>()?)];
        data.all_reduce(&mut mean, Reduce::Mean)?;
        losses.push(mean[0]);
        norms.push(zero.step(config.schedule.at(step), config.clip)?);
    }
    let mut values = Vec::new();
    zero.each(|spec, shard| {
        spec.runs(0..shard.len(), |here, at| {
            let expected = &expected[spec.whole.name.as_str()][at..at + here.len()];
            let apart = largest_difference(&shard[here], expected);
            // Adam divides by a root: where a gradient is nearly zero, rounding decides its sign. A
            // step that is missing, or goes elsewhere, is farther away than half of the smallest
            // step. A parameter in bf16 is rounded by more than a step.
            let most = config.schedule.at(0) / 2.0;
            let is_exact = config.precision == Precision::F32;
            assert!(!is_exact || apart < most, "{} from {at} on: {apart:e}", spec.name);
        });
        values.push((spec.name.clone(), shard.to_vec()));
    })?;
    // Each stage has its own order of parameters.
    values.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Trained { losses, norms, values })
}
