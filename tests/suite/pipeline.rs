//! Pipelines train the model that one rank trains, whatever the schedule.

use super::parity::{config, loss_rounding, train_large_batch};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::mesh::{Axis, Coordinates, Layout, Mesh, Order};
use shardlab::model::Gpt;
use shardlab::parallel::ZeroConfig;
use shardlab::parallel::pipeline::{Partition, Pipeline, Schedule, Times, simulate};
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::{Config, PipelinePlan, Pipelined, Unpipelined, unpipelined};

const STEPS: usize = 3;

/// Trains with every schedule on all ranks of `world` as one pipeline: the same bits as on one
/// rank, step by step.
pub fn pipelines_train_what_one_rank_trains(world: &Comm) -> anyhow::Result<()> {
    let ranks = world.size();
    let sizes = Coordinates { data: 1, pipeline: ranks, tensor: 1 };
    let mesh = Mesh::new(world, Layout { sizes, order: Order::default() })?;
    let (config, corpus) = config(1, |config| {
        (config.dropout, config.clip, config.grad_accum, config.batch) = (0.1, 0.5, 2 * ranks, 1);
        config.shape.layers = 2 * ranks + 1;
    });
    let one = unpipelined(&config, &corpus.train, STEPS)?;
    let plans = [
        (Schedule::GPipe, 1, Partition::Uniform, 0),
        (Schedule::OneForwardOneBackward, 1, Partition::Parameters, 0),
        (Schedule::OneForwardOneBackward, 1, Partition::Uniform, 2),
        (Schedule::ZeroBubble, 1, Partition::Uniform, 0),
        (Schedule::ZeroBubble, 1, Partition::Uniform, 1),
        (Schedule::Interleaved { group: ranks }, 2, Partition::Uniform, 0),
        (Schedule::Interleaved { group: 2 * ranks }, 2, Partition::Parameters, 3),
    ];
    for (schedule, chunks, partition, recompute) in plans {
        let pipeline = Pipeline { ranks, chunks, micro_batches: config.grad_accum };
        let plan = PipelinePlan { pipeline, schedule, partition, recompute };
        for stage in [Stage::Ddp, Stage::One] {
            trains_like(&one, &config, &corpus.train, &mesh, &plan, stage)?;
        }
    }
    Ok(())
}

fn trains_like(
    one: &Unpipelined,
    config: &Config,
    text: &[u32],
    mesh: &Mesh,
    plan: &PipelinePlan,
    stage: Stage,
) -> anyhow::Result<()> {
    let zero = ZeroConfig::new(stage, Precision::F32, config.adamw);
    let mut pipelined = Pipelined::new(config, mesh, plan, (false, 1), zero)?;
    let rank = mesh.group(Axis::Pipeline).rank();
    let orders = plan.schedule.orders(&plan.pipeline)?;
    let times = Times { forward: 1.0, backward: 2.0, weights: 1.0, message: 0.0 };
    let peaks = simulate(&plan.pipeline, &orders, &times)?.peaks;
    for step in 0..STEPS {
        let stepped = pipelined.step(text, step)?;
        let what = format!("{plan:?}, {stage:?}, step {step}, rank {rank}");
        let found = [stepped.loss, stepped.grad_norm];
        let expected = [one.losses[step], one.grad_norms[step]];
        assert!(
            same_bits(&found, &expected),
            "{what}: loss and norm are {found:?}, not {expected:?}"
        );
        let ran: Vec<_> = stepped.ran.passes.iter().map(|done| done.op).collect();
        assert_eq!(ran, orders[rank], "{what}");
        let most = stepped.ran.passes.iter().map(|done| done.live).max();
        assert_eq!(most, Some(peaks[rank]), "{what}");
    }
    let params = &pipelined.stages.chunks[0].params;
    for spec in params.specs() {
        let expected = one.value(&spec.name).unwrap_or_default();
        assert!(
            same_bits(&params.values()[spec.range()], &expected),
            "{plan:?}, {stage:?}: {}",
            spec.name
        );
    }
    Ok(())
}

/// Trains on a mesh of data x pipeline x tensor ranks, with ZeRO-1 and sequence parallelism, and
/// compares with one rank that takes each step's data as one batch.
pub fn meshes_train_what_one_rank_trains(world: &Comm, sizes: Coordinates) -> anyhow::Result<()> {
    let mesh = Mesh::new(world, Layout { sizes, order: Order::default() })?;
    let (config, corpus) = config(sizes.data, |config| {
        (config.dropout, config.clip, config.grad_accum, config.batch) = (0.1, 0.5, 4, 1);
        (config.shape.layers, config.shape.heads) = (2 * sizes.pipeline, 4);
    });
    let text = &corpus.train;
    let one = train_large_batch(&config, text, STEPS)?;
    for (chunks, schedule, sequence, stage) in [
        (1, Schedule::OneForwardOneBackward, false, Stage::One),
        (1, Schedule::ZeroBubble, true, Stage::Ddp),
        (
            if sizes.pipeline > 1 { 2 } else { 1 },
            Schedule::Interleaved { group: 4 },
            true,
            Stage::One,
        ),
    ] {
        let pipeline = Pipeline {
            ranks: sizes.pipeline,
            chunks,
            micro_batches: config.grad_accum,
        };
        let plan = PipelinePlan {
            pipeline,
            schedule,
            partition: Partition::Uniform,
            recompute: 0,
        };
        let what = format!("{sizes:?}, {plan:?}, sequence parallelism {sequence}, {stage:?}");
        let zero = ZeroConfig::new(stage, Precision::F32, config.adamw);
        let mut pipelined = Pipelined::new(&config, &mesh, &plan, (sequence, 1), zero)?;
        for step in 0..STEPS {
            let stepped = pipelined.step(text, step)?;
            let mut loss = [stepped.loss];
            mesh.group(Axis::Data).all_reduce(&mut loss, Reduce::Mean)?;
            let apart = largest_difference(&loss, &one.losses[step..step + 1]);
            assert!(
                apart < loss_rounding(config.tokens_per_step()),
                "{what}: {loss:?} {:?}",
                one.losses
            );
            let mut most = [stepped.grad_norm];
            world.all_reduce(&mut most, Reduce::Max)?;
            assert_eq!(most[0], stepped.grad_norm, "{what}: ranks clip by different norms");
        }
        let whole = Gpt::new(&config.shape)?;
        whole.params.allocate(0);
        pipelined.unshard(&whole.params)?;
        let values = whole.params.values();
        let apart = largest_difference(&values, &one.values);
        // A step that is missing, or goes elsewhere, is farther away than half of the smallest
        // step.
        assert!(apart < config.schedule.at(0) / 2.0, "{what}: a parameter is {apart:e} apart");
    }
    Ok(())
}
