//! Pipelines train the model that one rank trains, whatever the schedule.

use super::trained::{config, loss_rounding, train_large_batch};
use kit::parity::stored_values;
use labs::lab06::{Unpipelined, unpipelined};
use shardlab::comm::{Comm, Reduce};
use shardlab::difference::{largest_difference, same_bits};
use shardlab::mesh::{Axis, Coordinates};
use shardlab::parallel::Strategy;
use shardlab::parallel::pipeline::{Partition, Schedule, Times, simulate};
use shardlab::parallel::strategy::Recompute;
use shardlab::parallel::zero::Stage;
use shardlab::tensor::Precision;
use shardlab::train::{Config, Training};

const STEPS: usize = 3;

/// Trains with every schedule on all ranks of `world` as one pipeline: the same bits as on one
/// rank, step by step.
pub fn pipelines_train_what_one_rank_trains(world: &Comm) -> anyhow::Result<()> {
    for precision in [Precision::F32, Precision::Bf16] {
        pipelines_train_in(precision, world)?;
    }
    Ok(())
}

fn pipelines_train_in(precision: Precision, world: &Comm) -> anyhow::Result<()> {
    let ranks = world.size();
    let (config, corpus) = config(1, |config| {
        (config.dropout, config.clip, config.grad_accum, config.batch) = (0.1, 0.5, 2 * ranks, 1);
        config.shape.layers = 2 * ranks + 1;
        config.precision = precision;
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
        for zero in [Stage::Ddp, Stage::One] {
            let strategy = Strategy {
                pipeline: ranks,
                chunks,
                schedule: Some(schedule),
                partition,
                recompute: Recompute::every(recompute),
                zero,
                ..Strategy::SINGLE
            };
            trains_like(&one, &config, &corpus.train, world, &strategy)?;
        }
    }
    Ok(())
}

fn trains_like(
    one: &Unpipelined,
    config: &Config,
    text: &[u32],
    world: &Comm,
    strategy: &Strategy,
) -> anyhow::Result<()> {
    let mut training = Training::new(config, strategy, world)?;
    let rank = training.mesh.group(Axis::Pipeline).rank();
    let pipeline = strategy.pipeline(config.grad_accum);
    let orders = strategy.schedule().orders(&pipeline)?;
    let times = Times { forward: 1.0, backward: 2.0, weights: 1.0, message: 0.0 };
    let peaks = simulate(&pipeline, &orders, &times)?.peaks;
    for step in 0..STEPS {
        let stepped = training.step(text, step)?;
        let what = format!("{strategy}, {:?}, step {step}, rank {rank}", config.precision);
        let found = [stepped.loss, stepped.grad_norm];
        let expected = [one.losses[step], one.grad_norms[step]];
        assert!(
            same_bits(&found, &expected),
            "{what}: loss and norm are {found:?}, not {expected:?}"
        );
        let passes = &stepped.computed.ran.passes;
        let ran: Vec<_> = passes.iter().map(|done| done.op).collect();
        assert_eq!(ran, orders[rank], "{what}");
        let most = passes.iter().map(|done| done.live).max();
        assert_eq!(most, Some(peaks[rank]), "{what}");
    }
    let params = &training.stages.chunks[0].params;
    let values = stored_values(params);
    for spec in params.specs() {
        let expected = one.value(&spec.name).unwrap_or_default();
        assert!(same_bits(&values[spec.range()], &expected), "{strategy}: {}", spec.name);
    }
    Ok(())
}

/// Trains on a mesh of data x pipeline x tensor ranks, with ZeRO-1 and sequence parallelism, and
/// compares with one rank that takes each step's data as one batch.
pub fn meshes_train_what_one_rank_trains(world: &Comm, sizes: Coordinates) -> anyhow::Result<()> {
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
        let schedule = Some(schedule);
        let strategy = Strategy { chunks, schedule, sequence, ..super::strategy(sizes, stage) };
        let what = strategy.to_string();
        let mut training = Training::new(&config, &strategy, world)?;
        for step in 0..STEPS {
            let stepped = training.step(text, step)?;
            let mut loss = [stepped.loss];
            training.mesh.group(Axis::Data).all_reduce(&mut loss, Reduce::Mean)?;
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
        let values = training.whole(|gpt| Ok(gpt.params.whole()?.clone()))?;
        let apart = largest_difference(&values, &one.values);
        // A step that is missing, or goes elsewhere, is farther away than half of the smallest
        // step.
        assert!(apart < config.schedule.at(0) / 2.0, "{what}: a parameter is {apart:e} apart");
    }
    Ok(())
}
